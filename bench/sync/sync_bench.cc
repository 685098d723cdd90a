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
#include <chrono>
#include <cstdlib>
#include <cstring>
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
#include "bench/sync/bench_plan.h"
#include "bench/sync/gradient_sync.h"
#include "bench/sync/layers/backward_order.h"
#include "bench/sync/layers/layer_network.h"
#include "bench/sync/sync_report.h"
#include "bench/sync/sync_run.h"
#include "bench/sync/thread_clocks.h"
#include "bench/sync/workload.h"
#include "generated/commit.h"
#include "lmdbio/base/placement.h"
#include "lmdbio/file/source/small_file.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"
#include "lmdbio/ranks/mpi/mpi_group.h"
#include "tools/cli/cli.h"

namespace {

using lmdbio::ErrorCode;
using lmdbio::Fail;
using lmdbio::Placement;
using lmdbio::Result;
using lmdbio::Status;
using lmdbio::bench::BenchPlan;
using lmdbio::bench::BenchRunKind;
using lmdbio::bench::RunResult;
using lmdbio::bench::Variant;
using lmdbio::tools::Invocation;
using lmdbio::tools::Misuse;
using nlohmann::ordered_json;
namespace bench = lmdbio::bench;
namespace ranks = lmdbio::ranks;

constexpr double kQuietLoad = 0.3;  // of all cores: above it, a neighbour is at work

// The error stream of a rank that fails while the others wait for it.
int g_error_descriptor = STDERR_FILENO;

// scp_absence        "" or the reason why no thread can have a core of its own
// is_unknown_absent  one command line serves builds with other variants
void ChooseVariants(const std::string& scp_absence, bool is_unknown_absent, BenchPlan& plan) {
  for (const std::string& name : plan.variant_names) {
    Result<Variant> variant = bench::ParseVariant(name);
    if (!variant && is_unknown_absent) {
      plan.absent[name] = variant.error().message();
      continue;
    }
    if (!variant) throw Misuse(variant.error().message());
    const std::string absence = variant->is_pinned ? scp_absence : bench::WhyAbsent(*variant);
    if (absence.empty()) {
      plan.variants.push_back(std::move(*variant));
    } else {
      plan.absent[name] = absence;
    }
  }
}

// A paced wire carries the gradients of all variants that are compared, or of none.
void CheckWire(const bench::SyncSettings& settings, int rank_count, const BenchPlan& plan) {
  if (!settings.wire) return;
  if (rank_count == 1) throw Misuse("--wire-rate, --wire-delay-us: one rank has no wire");
  for (const Variant& variant : plan.variants) {
    if (variant.is_none() || variant.has_wire) continue;
    throw Misuse(
        fmt::format("--wire-rate, --wire-delay-us: variant '{}' has a network of its own; "
                    "expected lmdbio variants with collective auto, ring, halving or "
                    "direct, and without +roots",
                    variant.name));
  }
}

// Collective. The cores of this rank's threads, for variants with +scp.
// Errors: kInvalidArgument  the placement does not fit
Result<Placement> PlaceRank(const Invocation& invocation, ranks::Group& host) {
  LMDBIO_TRY(const lmdbio::HostCores cores, lmdbio::ProcessTopology());
  const uint64_t mine = lmdbio::CoresDigest(cores.allowed);
  LMDBIO_TRY(const auto gathered, host.AllGather(std::as_bytes(std::span(&mine, 1))));
  std::vector<uint64_t> digests(static_cast<size_t>(host.size()));
  std::memcpy(digests.data(), gathered.data(), gathered.size());
  return lmdbio::PlaceThreads(invocation.option<std::string>("placement"), cores,
                              lmdbio::PlaceAmong(host.rank(), digests));
}

// Collective. "", or the reason why some rank has too few cores for SCP: a rank that pins nothing
// would disturb those that do, and its times would be those of the variant without +scp.
Result<std::string> WhyScpIsAbsent(ranks::Group& group, const Placement& placement) {
  std::string reason;
  if (placement.Describe().empty()) {
    reason = placement.notes.empty() ? "the placement pins nothing" : placement.notes.front();
  }
  const auto is_absent = static_cast<std::byte>(!reason.empty());
  LMDBIO_TRY(const auto all, group.AllGather(std::span(&is_absent, 1)));
  const auto first = std::find(all.begin(), all.end(), std::byte{1});
  if (first == all.end() || !reason.empty()) return reason;
  return fmt::format("rank {} has too few cores", first - all.begin());
}

// Rank 0 measures while the others sleep, so that every rank does the same work.
Status Calibrate(ranks::Group& group, BenchPlan& plan) {
  if (group.rank() == 0 && plan.work.units_per_second == 0) {
    plan.work.units_per_second = bench::MeasureUnitsPerSecond();
  }
  LMDBIO_TRY_VOID(bench::SleepingMeeting(MPI_COMM_WORLD));
  LMDBIO_TRY_VOID(
      group.Broadcast(0, std::as_writable_bytes(std::span(&plan.work.units_per_second, 1))));
  const double period_ms = std::chrono::duration<double, std::milli>(bench::kInputPeriod).count();
  const double batch_ms =
      plan.work.input_batch_ms > 0 ? plan.work.input_batch_ms : plan.work.input_duty * period_ms;
  plan.work.options.input.units_per_batch = bench::UnitsOf(batch_ms, plan.work);
  return {};
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
std::vector<BenchEntry> EntriesOf(const BenchPlan& plan) {
  std::vector<BenchEntry> entries;
  for (const Variant& variant : plan.variants) {
    entries.push_back({&variant, BenchRunKind::kTrain});
    if (!variant.is_none() && plan.has_alone(variant)) {
      entries.push_back({&variant, BenchRunKind::kAlone});
    }
    if (variant.has_helper) entries.push_back({&variant, BenchRunKind::kIdle});
  }
  std::erase_if(entries, [&](const BenchEntry& entry) { return !plan.kinds.contains(entry.kind); });
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
  std::vector<BenchEntry> entries = EntriesOf(plan);
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
Result<ordered_json> Measure(const Invocation& invocation, ranks::Group& group,
                             const BenchPlan& plan, const std::string& name, bool& has_failed) {
  LMDBIO_TRY(const bench::LayerNetwork network, bench::ReadNamedNetwork(name, plan.scale));
  bench::Gradients gradients(network);
  bench::WorkloadOptions work = plan.work.options;
  work.units = bench::UnitsOf(bench::ComputeMs(plan.work, network), plan.work);
  if (plan.work.has_accelerator) work.accelerator_units_per_second = plan.work.units_per_second;
  if (plan.work.is_backward_greedy) work.backward_order = bench::GreedyBackwardOrder(network);
  bench::Workload workload(network, work);
  bench::RunStage stage{group,         MPI_COMM_WORLD, network,
                        gradients,     workload,       bench::ReadSettings(invocation),
                        plan.placement};
  bench::ReadLimits(invocation, stage);
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
  json["settings"] = bench::DescribeSettings(plan, stage);
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
  BenchPlan plan = bench::ReadPlan(invocation, group->rank());
  LMDBIO_TRY(plan.placement, ranks::ForAll(*group, PlaceRank(invocation, *host)));
  LMDBIO_TRY(const std::string scp_absence, WhyScpIsAbsent(*group, plan.placement));
  ChooseVariants(scp_absence, invocation.has("skip-unknown"), plan);
  CheckWire(bench::ReadSettings(invocation), group->size(), plan);
  if (!plan.work.compute_like.empty()) {
    LMDBIO_TRY(const auto network, bench::ReadNamedNetwork(plan.work.compute_like, plan.scale));
    plan.work.compute_like_madds = network.madds;
  }
  ordered_json environment = DescribeEnvironment(*group, *host);
  WarnOfNeighbours(invocation, environment);
  const bench::HostTime before = bench::TimeOfHost();
  LMDBIO_TRY_VOID(Calibrate(*group, plan));
  for (const auto& [variant, reason] : plan.absent) {
    LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(fmt::format("{} is absent: {}\n", variant, reason)));
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
               Measure(invocation, *group, plan, name, has_failed));
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
      &bench::DescribeBenchOptions, &Run, lmdbio::tools::Output::kText}};
  return lmdbio::tools::RunTool("sync_bench", commands.front().summary, commands, argc, argv);
}
