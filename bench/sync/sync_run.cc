#include "bench/sync/sync_run.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "bench/sync/mpi_call_count.h"
#include "bench/sync/report/iteration_figures.h"
#include "bench/sync/sleep_lateness.h"
#include "bench/sync/thread_clocks.h"
#include "lmdbio/ranks/mpi/mpi_calls.h"

namespace lmdbio::bench {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// The threads of this rank by their tasks. MPI's own are among none of them.
struct RankThreads {
  std::vector<pid_t> computing;
  std::vector<pid_t> input;
  std::vector<pid_t> helpers;  // those that the variant has made
};

// The counters of this rank at one time.
struct CounterSnapshot {
  Clock::time_point time;
  uint64_t process_cpu_ns = 0;
  ThreadTime helpers;
  ThreadTime computing;
  ThreadTime input;
  ThreadTime all;
  LatenessCounts lateness;  // of the helper threads
  HostTime host;
  uint64_t mpi_calls = 0;
};

// The wall clock is read last, so that at the start the reading itself is outside of the time.
CounterSnapshot TakeSnapshot(const RankThreads& threads) {
  CounterSnapshot now;
  now.mpi_calls = MpiCallCount();
  now.lateness = LatenessOf(threads.helpers);
  now.helpers = TimeOf(threads.helpers);
  now.computing = TimeOf(threads.computing);
  now.input = TimeOf(threads.input);
  now.all = TimeOf(ThreadsOfProcess());
  now.host = TimeOfHost();
  now.process_cpu_ns = ProcessCpuNs();
  now.time = Clock::now();
  return now;
}

RankCost CostBetween(const CounterSnapshot& start, const CounterSnapshot& end) {
  RankCost cost;
  cost.wall_s = std::chrono::duration<double>(end.time - start.time).count();
  cost.process_cpu_s = Seconds(end.process_cpu_ns - start.process_cpu_ns);
  const ThreadTime helpers = end.helpers - start.helpers;
  const ThreadTime all = end.all - start.all;
  cost.helper.cpu_s = Seconds(helpers.cpu_ns);
  cost.helper.delay_s = Seconds(helpers.run_delay_ns);
  // All threads that the variant has not made count as the trainer's, those of MPI included.
  cost.trainer_delay_s = Seconds(all.run_delay_ns - helpers.run_delay_ns);
  cost.helper.start_count = helpers.start_count;
  cost.helper.involuntary_count = helpers.involuntary_count;
  cost.computing_switches = (end.computing - start.computing).involuntary_count;
  cost.input_switches = (end.input - start.input).involuntary_count;
  const LatenessCounts lateness = end.lateness - start.lateness;
  cost.helper.sleep_count = lateness.sleep_count();
  cost.helper.late_p50_us = lateness.QuantileNs(0.5) * 1e-3;
  cost.helper.late_p99_us = lateness.QuantileNs(0.99) * 1e-3;
  const HostTime host = end.host - start.host;
  cost.neighbour_cores = host.busy_s / cost.wall_s;  // the ranks' own are taken off later
  cost.steal_cores = host.steal_s / cost.wall_s;
  cost.traffic.mpi_calls = end.mpi_calls - start.mpi_calls;
  return cost;
}

void AddTraffic(const Traffic& start, const Traffic& end, RankCost& cost) {
  cost.traffic.control_messages = end.control_messages - start.control_messages;
  cost.traffic.control_bytes = end.control_bytes - start.control_bytes;
  cost.traffic.collectives = end.collectives - start.collectives;
  cost.traffic.collective_bytes = end.collective_bytes - start.collective_bytes;
}

// The counts only grow, so the difference is that of the measured iterations.
std::map<uint64_t, uint64_t> SizesBetween(const Traffic& start, const Traffic& end) {
  std::map<uint64_t, uint64_t> sizes;
  for (const auto& [bytes, count] : end.sizes) {
    const auto before = start.sizes.find(bytes);
    const uint64_t more = count - (before == start.sizes.end() ? 0 : before->second);
    if (more > 0) sizes[bytes] = more;
  }
  return sizes;
}

template <typename T>
Result<std::vector<T>> GatherAll(ranks::Group& group, std::span<const T> mine) {
  LMDBIO_TRY(const std::vector<std::byte> bytes, group.AllGather(std::as_bytes(mine)));
  std::vector<T> all(bytes.size() / sizeof(T));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  return all;
}

// How many iterations all ranks measure, by how long the slowest needs for one. All ranks must make
// as many iterations, because each contains collective calls.
Result<uint32_t> AgreeOnCount(const RunStage& stage, double iteration_ms) {
  LMDBIO_TRY(const std::vector<double> all,
             GatherAll(stage.group, std::span<const double>(&iteration_ms, 1)));
  const double slowest_s = *std::max_element(all.begin(), all.end()) * 1e-3;
  const double fitting = stage.run_seconds_max / std::max(slowest_s, 1e-9);
  // Compared as numbers with fractions: for fast iterations it is too large for an integer.
  if (fitting >= stage.iteration_count) return stage.iteration_count;
  return std::min(stage.iteration_count, std::max(kIterationsMin, static_cast<uint32_t>(fitting)));
}

// All iterations of this rank.
Result<std::vector<double>> RunIterations(const RunStage& stage, const IterationParts& parts,
                                          IterationRunner& runner, const RankThreads& threads,
                                          RunResult& result, RankCost& cost) {
  GradientSync* const sync = parts.sync;
  const InputWindow& window = parts.window;
  uint64_t iteration = 0;
  double last_ms = 0;
  for (; iteration < stage.warmup_count; ++iteration) {
    LMDBIO_TRY(last_ms, runner.Iterate(iteration));
  }
  LMDBIO_TRY(const uint32_t count, AgreeOnCount(stage, last_ms));
  // All ranks begin the measured iterations together.
  LMDBIO_TRY_VOID(SleepingMeeting(stage.communicator));
  const Traffic traffic = sync == nullptr ? Traffic() : sync->traffic();
  const std::chrono::nanoseconds window_before = window.total();
  const uint64_t early_before = window.early_count();
  const uint64_t batches_before = stage.workload.input().batch_count();
  const CounterSnapshot start = TakeSnapshot(threads);
  std::vector<double> times;
  for (uint32_t i = 0; i < count; ++i) {
    LMDBIO_TRY(times.emplace_back(), runner.Iterate(iteration++));
  }
  cost = CostBetween(start, TakeSnapshot(threads));
  cost.checksum = runner.checksum();
  const std::chrono::duration<double, std::milli> open_time = window.total() - window_before;
  cost.window_share = open_time.count() / std::accumulate(times.begin(), times.end(), 0.0);
  cost.early_transfers = window.early_count() - early_before;
  cost.input_batches = stage.workload.input().batch_count() - batches_before;
  if (sync == nullptr) return times;
  const Traffic traffic_after = sync->traffic();
  AddTraffic(traffic, traffic_after, cost);
  result.sizes = SizesBetween(traffic, traffic_after);
  return times;
}

RankThreads ThreadsOf(const Workload& workload) {
  RankThreads threads;
  threads.computing = workload.helper_threads();
  threads.computing.push_back(::gettid());
  threads.input = workload.input().threads();
  return threads;
}

// After the variant was made: its threads would inherit the cores of this one. The helper thread of
// a Synchronizer has pinned itself.
Status Pin(const RankThreads& threads, const Placement& placement) {
  LMDBIO_TRY_VOID(PinThreads(threads.computing, placement.compute));
  return PinThreads(threads.input, placement.input);
}

// Before the next variant is made.
Status Unpin(const RankThreads& threads) {
  LMDBIO_TRY(const HostCores cores, ProcessCores());
  LMDBIO_TRY_VOID(PinThreads(threads.computing, cores.allowed));
  return PinThreads(threads.input, cores.allowed);
}

// The cores that a rank keeps busy, and whose they are.
struct OwnCores {
  std::array<char, 64> machine{};
  double cores = 0;
};

// Of a machine's busy cores, those that its ranks did not keep busy themselves. Hosts that are
// containers of one machine share a kernel, which counts the time of all of them.
Status TakeOffOwnCpu(ranks::Group& group, RankCost& cost) {
  OwnCores own{.cores = cost.process_cpu_s / cost.wall_s};
  MachineId().copy(own.machine.data(), own.machine.size());
  LMDBIO_TRY(const std::vector<OwnCores> all, GatherAll(group, std::span<const OwnCores>(&own, 1)));
  for (const OwnCores& one : all) {
    if (one.machine == own.machine) cost.neighbour_cores -= one.cores;
  }
  cost.neighbour_cores = std::max(0.0, cost.neighbour_cores);
  return {};
}

// Ranks that train wait for each other. Alone, a rank that comes early waits for the others, so the
// rank that came last has the time of the communication.
RankJoin JoinOf(BenchRunKind kind, bool is_none) {
  if (kind == BenchRunKind::kAlone) return RankJoin::kQuickest;
  if (kind == BenchRunKind::kIdle || is_none) return RankJoin::kSlowest;
  return RankJoin::kLastEnd;
}

Status Collect(const RunStage& stage, RankJoin join, std::span<const double> times, RankCost cost,
               RunResult& result) {
  LMDBIO_TRY_VOID(TakeOffOwnCpu(stage.group, cost));
  LMDBIO_TRY(result.ranks, GatherAll(stage.group, std::span<const RankCost>(&cost, 1)));
  LMDBIO_TRY(const std::vector<double> all, GatherAll(stage.group, times));
  result.iteration_ms = JoinRankTimes(join, all, times.size());
  result.is_disturbed = result.neighbour_cores() > stage.neighbour_limit;
  return {};
}

}  // namespace

// Stolen time counts, because another virtual machine is a neighbour, too.
double RunResult::neighbour_cores() const {
  double most = 0;
  for (const RankCost& rank : ranks) {
    most = std::max(most, rank.neighbour_cores + rank.steal_cores);
  }
  return most;
}

Status SleepingMeeting(MPI_Comm communicator) {
  MPI_Request request = MPI_REQUEST_NULL;
  LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Ibarrier(communicator, &request), "MPI_Ibarrier"));
  int is_done = 0;
  while (true) {
    LMDBIO_TRY_VOID(ranks::MpiStatus(MPI_Test(&request, &is_done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (is_done != 0) return {};
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

Result<RunResult> RunVariant(const RunStage& stage, const Variant& variant, BenchRunKind kind,
                             uint32_t repetition) {
  RunResult result;
  result.variant = variant.name;
  result.kind = kind;
  result.repetition = repetition;
  InputWindow window(stage.workload.input());
  RankThreads threads = ThreadsOf(stage.workload);
  // The threads of a variant are those that exist after it was made and not before.
  const std::vector<pid_t> before = ThreadsOfProcess();
  std::unique_ptr<GradientSync> sync;
  if (!variant.is_none()) {
    auto made = MakeSync(variant, {stage.group, stage.communicator, stage.network, stage.gradients,
                                   stage.settings, &window, NameOf(kind)});
    // If a rank cannot make the variant, no rank runs it. That is a result and no failure of the
    // program: the other variants still run.
    const Status agreed =
        ranks::Agree(stage.group, made ? Status() : Fail(std::move(made).error()));
    if (!agreed) {
      result.error = agreed.error().message();
      return result;
    }
    sync = std::move(*made);
  }
  threads.helpers = ThreadsSince(before);
  if (variant.is_pinned) LMDBIO_TRY_VOID(Pin(threads, stage.placement));
  LMDBIO_TRY_VOID(SleepingMeeting(stage.communicator));
  const IterationParts parts{stage.network, stage.gradients,    stage.workload,    window,
                             sync.get(),    stage.group.rank(), stage.group.size()};
  IterationRunner runner(parts, kind, variant.is_windowed);
  RankCost cost;
  Result<std::vector<double>> times = RunIterations(stage, parts, runner, threads, result, cost);
  if (!times) return Fail(std::move(times).error().Within(variant.name));
  result.cores = {CoresOf(threads.computing), CoresOf(threads.input), CoresOf(threads.helpers)};
  if (variant.is_pinned) LMDBIO_TRY_VOID(Unpin(threads));
  LMDBIO_TRY_VOID(SleepingMeeting(stage.communicator));
  if (sync != nullptr) {
    result.description = sync->Description();  // with the plan of the run
    result.prediction = PredictionOf(result.description);
    result.untried_sizes = sync->UntriedSizes();
    LMDBIO_TRY_VOID(sync->Finish());
  }
  // Before Collect, so that the threads of the variant have ended when the next run lists its own.
  sync.reset();
  LMDBIO_TRY_VOID(Collect(stage, JoinOf(kind, variant.is_none()), *times, cost, result));
  return result;
}

}  // namespace lmdbio::bench
