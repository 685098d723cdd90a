#include "bench/sync/bench_plan.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>

namespace lmdbio::bench {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;
using tools::Invocation;
using tools::Misuse;
using tools::Whole;

constexpr std::array kAllKinds = {BenchRunKind::kTrain, BenchRunKind::kIdle, BenchRunKind::kAlone};

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

std::set<BenchRunKind> ReadKinds(const Invocation& invocation) {
  std::set<BenchRunKind> kinds;
  for (const std::string& word : SplitAtCommas(invocation.option<std::string>("kinds"))) {
    const auto kind = std::find_if(kAllKinds.begin(), kAllKinds.end(),
                                   [&](const BenchRunKind one) { return NameOf(one) == word; });
    if (kind == kAllKinds.end()) {
      throw Misuse(fmt::format("--kinds: '{}' is unknown; expected train, idle or alone", word));
    }
    kinds.insert(*kind);
  }
  return kinds;
}

bool ReadIsGreedy(const Invocation& invocation) {
  const auto& order = invocation.option<std::string>("backward-order");
  if (order != "network" && order != "greedy") {
    throw Misuse(
        fmt::format("--backward-order: '{}' is unknown; expected network or greedy", order));
  }
  if (order == "greedy" && invocation.has("shuffle")) {
    throw Misuse("--backward-order greedy: with --shuffle the order is random");
  }
  return order == "greedy";
}

std::vector<std::string> ReadAloneNames(const Invocation& invocation,
                                        const std::vector<std::string>& variant_names) {
  std::vector<std::string> names = SplitAtCommas(invocation.option<std::string>("alone-of"));
  for (const std::string& name : names) {
    if (std::ranges::find(variant_names, name) != variant_names.end()) continue;
    throw Misuse(fmt::format("--alone-of: '{}' is none of the variants", name));
  }
  return names;
}

}  // namespace

void DescribeBenchOptions(po::options_description_easy_init option) {
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
  option("compute-like", po::value<std::string>(),
         "network that takes --compute-ms; the others take time by their multiply-adds. Without "
         "it each takes --compute-ms");
  option("units-per-second", po::value<double>()->default_value(0),
         "speed of the work loop, as an earlier run saved it (work_units_per_s); 0: measured");
  option("threads", po::value<Whole>()->default_value({1}), "computing threads of each rank");
  option("accelerator",
         "the thread of each rank sleeps while an accelerator computes; it writes the gradients");
  option("shuffle", "ranks compute independent layers in different orders");
  option("backward-order", po::value<std::string>()->default_value("network"),
         "order of the layers of a backward pass in networks with branches: network, from the last "
         "one to the first one, or greedy, which has gradients ready early (Hashemi et al. 4.1)");
  option("input-threads", po::value<Whole>()->default_value({0}),
         "threads of each rank that prepare batches meanwhile");
  option("input-duty", po::value<double>()->default_value(0.5),
         "busy share of the time of an input thread");
  option("input-batch-ms", po::value<double>()->default_value(0),
         "each input thread prepares one batch in each iteration, of so many ms of computing on a "
         "core of its own; 0: by --input-duty");
  option("kinds", po::value<std::string>()->default_value("train,idle,alone"),
         "kinds of runs, separated by commas");
  option("alone-of", po::value<std::string>(),
         "variants whose communication is measured alone, separated by commas; by default all");
  option("skip-unknown", "a variant with an unknown name is absent, and no error");
  option("placement", po::value<std::string>()->default_value("scp"),
         "cores of the threads of variants with +scp, as the option placement of lmdbio");
  option("cycle-us", po::value<Whole>()->default_value({1000}), "cycle time of lmdbio in us");
  option("gs-cycles", po::value<Whole>()->default_value({1}),
         "cycles after which the ranks agree on the next cycle time, with pacing gs");
  option("fusion-bytes", po::value<Whole>()->default_value({uint64_t{64} << 20}),
         "fusion threshold of lmdbio in bytes");
  option("bucket-bytes", po::value<Whole>()->default_value({0}),
         "size of a bucket of lmdbio; 0: chosen by its collectives");
  option(
      "wire-rate", po::value<double>()->default_value(0),
      "rate of an emulated network in Gbit/s, of each rank each way, for the gradients of lmdbio "
      "variants; 0: no limit");
  option("wire-delay-us", po::value<double>()->default_value(0), "delay of the same network in us");
  option("gloo-bucket-bytes", po::value<Whole>()->default_value({uint64_t{25} << 20}),
         "size of a bucket of gloo");
  option("neighbour-limit", po::value<double>()->default_value(0.1),
         "cores that other processes may keep busy in a clean run");
  option("seed", po::value<Whole>()->default_value({1}), "seed of the order of runs");
  option("save", po::value<std::string>(), "write all results to this file, as JSON");
}

BenchPlan ReadPlan(const Invocation& invocation, int rank) {
  BenchPlan plan;
  const auto& networks = invocation.option<std::string>("network");
  plan.networks = networks == "all" ? AllNetworks() : SplitAtCommas(networks);
  plan.variant_names = SplitAtCommas(invocation.option<std::string>("variants"));
  plan.kinds = ReadKinds(invocation);
  if (invocation.has("alone-of")) {
    plan.alone_names = ReadAloneNames(invocation, plan.variant_names);
  }
  plan.baseline = invocation.option<std::string>("baseline");
  plan.repetition_count = Count(invocation, "repetitions", 1, 10'000);
  plan.scale = Number(invocation, "scale", 1e-6, 10);
  // Computing and tensors are scaled together, so that communication keeps its share.
  plan.work.compute_ms = Number(invocation, "compute-ms", 0, 1e6) * plan.scale;
  plan.work.options.threads = Count(invocation, "threads", 1, 64);
  plan.work.has_accelerator = invocation.has("accelerator");
  if (plan.work.has_accelerator && plan.work.options.threads > 1) {
    throw Misuse(fmt::format("--threads {}: with --accelerator a rank has one thread",
                             plan.work.options.threads));
  }
  plan.seed = invocation.whole("seed");
  if (invocation.has("shuffle")) {
    // Another seed on each rank, so that the ranks have their gradients in different orders.
    plan.work.options.shuffle_seed = plan.seed * 1000 + static_cast<uint64_t>(rank);
  }
  plan.work.is_backward_greedy = ReadIsGreedy(invocation);
  plan.work.options.input.thread_count = Count(invocation, "input-threads", 0, 64);
  plan.work.input_duty = Number(invocation, "input-duty", 0, 1);
  plan.work.input_batch_ms = Number(invocation, "input-batch-ms", 0, 1e6) * plan.scale;
  plan.work.options.input.is_by_iteration = plan.work.input_batch_ms > 0;
  plan.work.units_per_second = Number(invocation, "units-per-second", 0, 1e12);
  if (invocation.has("compute-like")) {
    plan.work.compute_like = invocation.option<std::string>("compute-like");
  }
  return plan;
}

bool BenchPlan::has_alone(const Variant& variant) const {
  return alone_names.empty() || std::ranges::find(alone_names, variant.name) != alone_names.end();
}

SyncSettings ReadSettings(const Invocation& invocation) {
  SyncSettings settings;
  settings.cycle_time = std::chrono::microseconds(Count(invocation, "cycle-us", 0, 1'000'000'000));
  settings.gs_cycles = Count(invocation, "gs-cycles", 1, 1'000'000);
  settings.fusion_bytes = invocation.whole("fusion-bytes");
  settings.bucket_bytes = invocation.whole("bucket-bytes");
  settings.gloo_bucket_bytes = invocation.whole("gloo-bucket-bytes");
  settings.placement = invocation.option<std::string>("placement");
  const WirePace pace{.bits_per_s = Number(invocation, "wire-rate", 0, 1e4) * 1e9,
                      .delay = std::chrono::nanoseconds(
                          static_cast<int64_t>(Number(invocation, "wire-delay-us", 0, 1e6) * 1e3))};
  if (pace.bits_per_s > 0 || pace.delay.count() > 0) settings.wire = pace;
  return settings;
}

void ReadLimits(const Invocation& invocation, RunStage& stage) {
  stage.warmup_count = Count(invocation, "warmup", 1, 1'000'000);
  stage.iteration_count = Count(invocation, "iterations", 1, 1'000'000);
  stage.run_seconds_max = Number(invocation, "run-seconds", 0, 1e6);
  stage.neighbour_limit = Number(invocation, "neighbour-limit", 0, 1e6);
}

Result<LayerNetwork> ReadNamedNetwork(const std::string& name, double scale) {
  return ReadNetwork(fmt::format("{}/{}.json", LMDBIO_BENCH_NETWORKS, name), scale);
}

uint64_t UnitsOf(double ms, const WorkPlan& work) {
  return static_cast<uint64_t>(ms * 1e-3 * work.units_per_second);
}

double ComputeMs(const WorkPlan& work, const LayerNetwork& network) {
  if (work.compute_like.empty()) return work.compute_ms;
  return work.compute_ms * network.madds / work.compute_like_madds;
}

ordered_json DescribeSettings(const BenchPlan& plan, const RunStage& stage) {
  return {{"scale", plan.scale},
          {"compute_ms", ComputeMs(plan.work, stage.network)},
          {"work_units_per_s", plan.work.units_per_second},
          {"threads", plan.work.options.threads},
          {"has_accelerator", plan.work.has_accelerator},
          {"is_shuffled", plan.work.options.shuffle_seed.has_value()},
          {"is_backward_greedy", plan.work.is_backward_greedy},
          {"input_threads", plan.work.options.input.thread_count},
          {"input_duty", plan.work.input_duty},
          {"input_batch_ms", plan.work.input_batch_ms},
          {"cycle_us", stage.settings.cycle_time.count()},
          {"gs_cycles", stage.settings.gs_cycles},
          {"fusion_bytes", stage.settings.fusion_bytes},
          {"bucket_bytes", stage.settings.bucket_bytes},
          {"gloo_bucket_bytes", stage.settings.gloo_bucket_bytes},
          {"placement", stage.settings.placement},
          {"wire_gbit_s", stage.settings.wire.value_or(WirePace()).bits_per_s * 1e-9},
          {"wire_delay_us",
           static_cast<double>(stage.settings.wire.value_or(WirePace()).delay.count()) * 1e-3},
          {"repetitions", plan.repetition_count},
          {"iterations", stage.iteration_count},
          {"run_seconds_max", stage.run_seconds_max},
          {"warmup", stage.warmup_count},
          {"neighbour_limit_cores", stage.neighbour_limit},
          {"seed", plan.seed}};
}

}  // namespace lmdbio::bench
