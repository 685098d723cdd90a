// Emulates the training of a network and measures several ways to reduce its gradients: the time of
// an iteration, the share of communication in it, and the cost of helper threads. See README.md.
//
//   calibrate the work once, on rank 0
//   for each network
//     for each repetition, in a random order
//       run each variant: in training, idle, and without computing (sync_run.h)
//     summarise the runs of each variant (sync_report.h)
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <nlohmann/json.hpp>

#include "bench/loader/mpi_run.h"
#include "bench/sync/gradient_sync.h"
#include "bench/sync/layer_network.h"
#include "bench/sync/sync_report.h"
#include "bench/sync/sync_run.h"
#include "bench/sync/thread_clocks.h"
#include "bench/sync/workload.h"
#include "generated/commit.h"
#include "lmdbio/file/source/small_file.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "lmdbio/ranks/mpi/mpi_group.h"
#include "tools/cli/cli.h"

namespace {

using lmdbio::ErrorCode;
using lmdbio::Fail;
using lmdbio::Result;
using lmdbio::Status;
using lmdbio::bench::BenchRunKind;
using lmdbio::bench::RunResult;
using lmdbio::bench::Variant;
using lmdbio::tools::Invocation;
using lmdbio::tools::Misuse;
using lmdbio::tools::Whole;
using nlohmann::ordered_json;
namespace bench = lmdbio::bench;
namespace ranks = lmdbio::ranks;
namespace po = boost::program_options;

constexpr double kQuietLoad = 0.3;  // of all cores: above it, a neighbour is at work

// The error stream of a rank that fails while the others wait for it.
int g_error_descriptor = STDERR_FILENO;

void Describe(po::options_description_easy_init option) {
  option("network", po::value<std::string>()->default_value("resnet50"),
         "names of networks, separated by commas, or all");
  option("variants", po::value<std::string>()->default_value("none,mpi,mpi-fused"),
         "variants, separated by commas: none, mpi, mpi-fused, gloo, "
         "lmdbio:COORDINATOR[+ADDITION...][:PACING[:COLLECTIVE[:TRANSPORT]]]; COORDINATOR graph "
         "is topo with the graph of the network");
  option("baseline", po::value<std::string>()->default_value("mpi"),
         "variant that the ratios refer to");
  option("repetitions", po::value<Whole>()->default_value({5}), "runs of each variant");
  option("iterations", po::value<Whole>()->default_value({30}), "measured iterations of a run");
  option("run-seconds", po::value<double>()->default_value(10),
         "time of a run in seconds; slow variants run fewer iterations, but at least 5");
  option("warmup", po::value<Whole>()->default_value({3}), "unmeasured iterations before a run");
  option("scale", po::value<double>()->default_value(1),
         "factor for the sizes of tensors and the time of computing");
  option("compute-ms", po::value<double>()->default_value(50),
         "computing time of an iteration in ms, on a core of its own");
  option("threads", po::value<Whole>()->default_value({1}), "computing threads of each rank");
  option("shuffle", "ranks compute independent layers in different orders");
  option("input-threads", po::value<Whole>()->default_value({0}),
         "threads of each rank that prepare batches meanwhile");
  option("input-duty", po::value<double>()->default_value(0.5),
         "busy share of the time of an input thread");
  option("cycle-us", po::value<Whole>()->default_value({1000}), "cycle time of lmdbio in us");
  option("gs-cycles", po::value<Whole>()->default_value({1}),
         "cycles after which the ranks agree on the next cycle time, with pacing gs");
  option("fusion-bytes", po::value<Whole>()->default_value({uint64_t{64} << 20}),
         "fusion threshold of lmdbio in bytes");
  option("bucket-bytes", po::value<Whole>()->default_value({0}),
         "size of a bucket of lmdbio; 0: chosen by its collectives");
  option("gloo-bucket-bytes", po::value<Whole>()->default_value({uint64_t{25} << 20}),
         "size of a bucket of gloo");
  option("neighbour-limit", po::value<double>()->default_value(0.1),
         "cores that other processes may keep busy in a clean run");
  option("seed", po::value<Whole>()->default_value({1}), "seed of the order of runs");
  option("save", po::value<std::string>(), "write all results to this file, as JSON");
}

// The parsed options.
struct BenchPlan {
  std::vector<std::string> networks;
  std::vector<Variant> variants;
  std::vector<std::string> absent;  // lines
  std::string baseline;
  uint32_t repetition_count = 0;
  double scale = 1;
  double compute_ms = 0;
  double units_per_second = 0;
  bench::WorkloadOptions work;
  uint64_t seed = 0;
};

std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> words;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    words.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return words;
}

std::vector<std::string> AllNetworks() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(LMDBIO_BENCH_NETWORKS)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

uint32_t Count(const Invocation& invocation, const std::string& name, uint64_t least,
               uint64_t most) {
  const uint64_t count = invocation.whole(name);
  if (count < least || count > most) {
    throw Misuse(fmt::format("--{} must lie between {} and {}", name, least, most));
  }
  return static_cast<uint32_t>(count);
}

double Number(const Invocation& invocation, const std::string& name, double least, double most) {
  const double number = invocation.option<double>(name);
  // Written so that NaN is refused, too.
  if (!(number >= least && number <= most)) {
    throw Misuse(fmt::format("--{} must lie between {} and {}", name, least, most));
  }
  return number;
}

void ChooseVariants(const Invocation& invocation, BenchPlan& plan) {
  for (const std::string& name : SplitAtCommas(invocation.option<std::string>("variants"))) {
    Result<Variant> variant = bench::ParseVariant(name);
    if (!variant) throw Misuse(variant.error().message());
    const std::string absence = bench::WhyAbsent(*variant);
    if (absence.empty()) {
      plan.variants.push_back(std::move(*variant));
    } else {
      plan.absent.push_back(fmt::format("{} is absent: {}", name, absence));
    }
  }
}

BenchPlan ReadPlan(const Invocation& invocation, int rank) {
  BenchPlan plan;
  const auto& networks = invocation.option<std::string>("network");
  plan.networks = networks == "all" ? AllNetworks() : SplitAtCommas(networks);
  ChooseVariants(invocation, plan);
  plan.baseline = invocation.option<std::string>("baseline");
  plan.repetition_count = Count(invocation, "repetitions", 1, 10'000);
  plan.scale = Number(invocation, "scale", 1e-6, 10);
  // Computing and tensors are scaled together, so that communication keeps its share.
  plan.compute_ms = Number(invocation, "compute-ms", 0, 1e6) * plan.scale;
  plan.work.threads = Count(invocation, "threads", 1, 64);
  plan.seed = invocation.whole("seed");
  if (invocation.has("shuffle")) {
    // Another seed on each rank, so that the ranks have their gradients in different orders.
    plan.work.shuffle_seed = plan.seed * 1000 + static_cast<uint64_t>(rank);
  }
  plan.work.input_threads = Count(invocation, "input-threads", 0, 64);
  plan.work.input_duty = Number(invocation, "input-duty", 0, 1);
  return plan;
}

bench::SyncSettings ReadSettings(const Invocation& invocation) {
  bench::SyncSettings settings;
  settings.cycle_time = std::chrono::microseconds(Count(invocation, "cycle-us", 0, 1'000'000'000));
  settings.gs_cycles = Count(invocation, "gs-cycles", 1, 1'000'000);
  settings.fusion_bytes = invocation.whole("fusion-bytes");
  settings.bucket_bytes = invocation.whole("bucket-bytes");
  settings.gloo_bucket_bytes = invocation.whole("gloo-bucket-bytes");
  return settings;
}

// Rank 0 measures while the others sleep, so that every rank does the same work.
Status Calibrate(ranks::Group& group, BenchPlan& plan) {
  if (group.rank() == 0) plan.units_per_second = bench::MeasureUnitsPerSecond();
  LMDBIO_TRY_VOID(bench::SleepingMeeting(MPI_COMM_WORLD));
  LMDBIO_TRY_VOID(group.Broadcast(0, std::as_writable_bytes(std::span(&plan.units_per_second, 1))));
  plan.work.units_per_second = plan.units_per_second;
  plan.work.units = static_cast<uint64_t>(plan.compute_ms * 1e-3 * plan.units_per_second);
  return {};
}

ordered_json DescribeSettings(const BenchPlan& plan, const bench::RunStage& stage) {
  return {{"scale", plan.scale},
          {"compute_ms", plan.compute_ms},
          {"work_units_per_s", plan.units_per_second},
          {"threads", plan.work.threads},
          {"is_shuffled", plan.work.shuffle_seed.has_value()},
          {"input_threads", plan.work.input_threads},
          {"input_duty", plan.work.input_duty},
          {"cycle_us", stage.settings.cycle_time.count()},
          {"gs_cycles", stage.settings.gs_cycles},
          {"fusion_bytes", stage.settings.fusion_bytes},
          {"bucket_bytes", stage.settings.bucket_bytes},
          {"gloo_bucket_bytes", stage.settings.gloo_bucket_bytes},
          {"repetitions", plan.repetition_count},
          {"iterations", stage.iteration_count},
          {"run_seconds_max", stage.run_seconds_max},
          {"warmup", stage.warmup_count},
          {"neighbour_limit_cores", stage.neighbour_limit},
          {"seed", plan.seed}};
}

std::string Setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Everything that changes the times and that the command line does not show. The OMPI_MCA variables
// are those that mpirun passes to its ranks.
ordered_json DescribeEnvironment(ranks::Group& group, ranks::Group& host) {
  int thread_level = 0;
  MPI_Query_thread(&thread_level);
  char library[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(library, &length);
  const std::string words(library, static_cast<size_t>(length));
  return {{"ranks", group.size()},
          {"ranks_on_host", host.size()},
          {"cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
          {"cores_of_rank", bench::CoreCount()},
          {"mpi", words.substr(0, words.find(','))},
          {"mpi_wait", lmdbio::tools::MpiWaitMode()},
          {"mpi_yield_when_idle", Setting("OMPI_MCA_mpi_yield_when_idle")},
          {"mpi_single_copy", Setting("OMPI_MCA_btl_vader_single_copy_mechanism")},
          {"binding", Setting("OMPI_MCA_hwloc_base_binding_policy")},
          {"mpi_threads", thread_level == MPI_THREAD_MULTIPLE ? "multiple" : "fewer"},
          {"governor", bench::CpuGovernor()},
          {"commit", LMDBIO_COMMIT},
          {"load_before", bench::LoadAverage()}};
}

// One run of a repetition. The order of runs is random, and the same on every rank.
struct BenchEntry {
  const Variant* variant = nullptr;
  BenchRunKind kind = BenchRunKind::kTrain;
};

// The kinds of runs that measure something: without helper thread an idle variant costs nothing,
// and `none` has no communication.
std::vector<BenchEntry> EntriesOf(const std::vector<Variant>& variants) {
  std::vector<BenchEntry> entries;
  for (const Variant& variant : variants) {
    entries.push_back({&variant, BenchRunKind::kTrain});
    if (!variant.is_none()) entries.push_back({&variant, BenchRunKind::kAlone});
    if (variant.has_helper) entries.push_back({&variant, BenchRunKind::kIdle});
  }
  return entries;
}

// If a rank fails in the middle of a run, the others may wait for it. This rank exits, and mpirun
// ends the others. MPI_Abort by several ranks at once can leave mpirun hanging.
[[noreturn]] void EndEveryRank(const lmdbio::Error& error) {
  const std::string line = fmt::format("sync_bench: {}\n", error.message());
  [[maybe_unused]] const auto written = ::write(g_error_descriptor, line.data(), line.size());
  // Without any clean-up, which could wait for other ranks.
  std::_Exit(1);
}

Result<std::vector<RunResult>> RunAll(const bench::RunStage& stage, const BenchPlan& plan) {
  std::vector<RunResult> runs;
  std::vector<BenchEntry> entries = EntriesOf(plan.variants);
  // Another order in each repetition, so that the drift of the machine affects all variants alike.
  // The seed is the same on every rank, and so is the order.
  std::mt19937_64 chance(plan.seed);
  for (uint32_t repetition = 0; repetition < plan.repetition_count; ++repetition) {
    std::shuffle(entries.begin(), entries.end(), chance);
    for (const BenchEntry& entry : entries) {
      Result<RunResult> run = bench::RunVariant(stage, *entry.variant, entry.kind, repetition);
      // Another rank may be inside a collective call that this rank will never join.
      if (!run) EndEveryRank(run.error());
      runs.push_back(std::move(*run));
    }
  }
  // The report has the order of the command line.
  std::stable_sort(runs.begin(), runs.end(), [&](const RunResult& one, const RunResult& other) {
    const auto place = [&](const RunResult& run) {
      return std::find_if(plan.variants.begin(), plan.variants.end(),
                          [&](const Variant& variant) { return variant.name == run.variant; });
    };
    return place(one) < place(other);
  });
  return runs;
}

ordered_json NetworkJson(const bench::LayerNetwork& network, const std::vector<RunResult>& runs,
                         const std::vector<bench::VariantSummary>& summaries) {
  ordered_json json;
  json["network"] = network.name;
  json["tensors"] = network.tensors.size();
  json["gradient_bytes"] = network.gradient_bytes();
  for (const bench::VariantSummary& summary : summaries) {
    json["variants"].push_back(bench::ToJson(summary));
  }
  for (const RunResult& run : runs) json["runs"].push_back(bench::ToJson(run));
  return json;
}

// Measures one network and, on rank 0, prints its table. Whether a variant could not be made goes
// to `has_failed`.
Result<ordered_json> Measure(const Invocation& invocation, ranks::Group& group, ranks::Group& host,
                             const BenchPlan& plan, const std::string& name, bool& has_failed) {
  const std::string path = fmt::format("{}/{}.json", LMDBIO_BENCH_NETWORKS, name);
  LMDBIO_TRY(const bench::LayerNetwork network, bench::ReadNetwork(path, plan.scale));
  bench::Gradients gradients(network);
  bench::Workload workload(network, plan.work);
  bench::RunStage stage{group,     host,     MPI_COMM_WORLD,          network,
                        gradients, workload, ReadSettings(invocation)};
  stage.warmup_count = Count(invocation, "warmup", 1, 1'000'000);
  stage.iteration_count = Count(invocation, "iterations", 1, 1'000'000);
  stage.run_seconds_max = Number(invocation, "run-seconds", 0, 1e6);
  stage.neighbour_limit = Number(invocation, "neighbour-limit", 0, 1e6);
  LMDBIO_TRY(const std::vector<RunResult> runs, RunAll(stage, plan));
  const auto summaries = bench::Summarise(runs, plan.baseline);
  LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(
      fmt::format("\n## {}: {} tensors, {:.1f} MB, {} ranks, MPI waits: {}\n\n{}", name,
                  network.tensors.size(), static_cast<double>(network.gradient_bytes()) / 1e6,
                  group.size(), lmdbio::tools::MpiWaitMode(), bench::Table(summaries))));
  for (const bench::VariantSummary& summary : summaries) {
    if (!summary.error.empty()) has_failed = true;
    // Its numbers are used all the same; the table shows 0 clean runs.
    if (summary.run_count > 0 && !summary.is_clean()) {
      invocation.Warn(
          fmt::format("{}, {}: other processes disturbed every run", name, summary.variant));
    }
  }
  ordered_json json = NetworkJson(network, runs, summaries);
  json["settings"] = DescribeSettings(plan, stage);
  return json;
}

// The load average covers the last minute, from before this program. Each run measures its
// neighbours by itself.
void WarnOfNeighbours(const Invocation& invocation, const ordered_json& environment) {
  const double load = environment["load_before"].get<double>();
  if (load <= kQuietLoad * environment["cores"].get<double>()) return;
  invocation.Warn(fmt::format("the load average is {}: other processes use the cores", load));
}

Status Save(const Invocation& invocation, const ordered_json& outcome) {
  if (!invocation.has("save")) return {};
  const std::string text = outcome.dump(1) + "\n";
  return lmdbio::file::WriteFileAtomically(invocation.option<std::string>("save"),
                                           std::as_bytes(std::span(text)));
}

Status Run(const Invocation& invocation) {
  LMDBIO_TRY(const auto group, lmdbio::ranks::MpiGroup(MPI_COMM_WORLD));
  LMDBIO_TRY(const auto host, group->SplitByHost());
  BenchPlan plan = ReadPlan(invocation, group->rank());
  ordered_json environment = DescribeEnvironment(*group, *host);
  WarnOfNeighbours(invocation, environment);
  const bench::HostTime before = bench::TimeOfHost();
  LMDBIO_TRY_VOID(Calibrate(*group, plan));
  for (const std::string& line : plan.absent) {
    LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(line + "\n"));
  }
  ordered_json outcome;
  // Keeps the first position in the file; the values follow at the end, with the load after the
  // runs.
  outcome["environment"] = nullptr;
  outcome["absent"] = plan.absent;
  outcome["baseline"] = plan.baseline;
  bool has_failed = false;
  for (const std::string& name : plan.networks) {
    LMDBIO_TRY(outcome["networks"].emplace_back(),
               Measure(invocation, *group, *host, plan, name, has_failed));
  }
  environment["load_after"] = bench::LoadAverage();
  environment["steal_s"] = (bench::TimeOfHost() - before).steal_s;
  outcome["environment"] = environment;
  std::string text = "\n";
  for (const auto& [name, value] : environment.items()) {
    text += fmt::format("# {}: {}\n", name, value.dump());
  }
  LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(text));
  if (group->rank() == 0) LMDBIO_TRY_VOID(Save(invocation, outcome));
  if (has_failed)
    return Fail(ErrorCode::kUnsupported, "a variant failed; the table above has the reason");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  // Before MpiRun, which silences the standard streams of all ranks but rank 0.
  g_error_descriptor = ::dup(STDERR_FILENO);
  const lmdbio::tools::MpiRun mpi(argc, argv, lmdbio::tools::MpiThreads::kAll);
  const std::array commands = {lmdbio::tools::Command{
      "", "", "Emulates the training of networks and sums their gradients by several variants.",
      &Describe, &Run, lmdbio::tools::Output::kText}};
  return lmdbio::tools::RunTool("sync_bench", commands.front().summary, commands, argc, argv);
}
