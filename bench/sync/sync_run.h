// bench/sync/sync_run.h - one run of one variant: some iterations, and their cost.
#ifndef LMDBIO_BENCH_SYNC_SYNC_RUN_H_
#define LMDBIO_BENCH_SYNC_SYNC_RUN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <mpi.h>

#include "bench/sync/gradient_sync.h"
#include "bench/sync/iteration_runner.h"
#include "bench/sync/layers/layer_network.h"
#include "bench/sync/report/plan_figures.h"
#include "bench/sync/workload.h"
#include "lmdbio/base/placement.h"
#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::bench {

// Threads that the variant has made.
struct HelperThreadCost {
  double cpu_s = 0;
  double delay_s = 0;              // for which they could run and had no core
  uint64_t start_count = 0;        // how often they got a core
  uint64_t involuntary_count = 0;  // how often they lost it although they could run on, or yielded
  // Timed sleeps, and how late they ended (sleep_lateness.h).
  uint64_t sleep_count = 0;
  double late_p50_us = 0;
  double late_p99_us = 0;
};

// Calls of one rank.
struct RankTraffic {
  uint64_t control_messages = 0;
  uint64_t control_bytes = 0;
  uint64_t collectives = 0;
  uint64_t collective_bytes = 0;
  uint64_t mpi_calls = 0;  // of any kind, as MPI's profiling interface sees them
};

// The cost of the measured iterations of a run for one rank.
struct RankCost {
  double wall_s = 0;
  double process_cpu_s = 0;
  HelperThreadCost helper;
  double trainer_delay_s = 0;  // all other threads could run and had no core
  // Involuntary context switches: a thread lost its core although it could run on.
  uint64_t computing_switches = 0;  // of the threads that compute layers
  uint64_t input_switches = 0;      // of the threads that prepare batches
  uint64_t input_batches = 0;
  double window_share = 0;  // of the time of iterations, as InputWindow
  // Iterations in which a transfer began before all layers were computed.
  uint64_t early_transfers = 0;
  double neighbour_cores = 0;  // cores that processes of others kept busy on this machine
  double steal_cores = 0;
  RankTraffic traffic;
  uint64_t checksum = 0;  // of the computing
};

// The cores on which the threads of rank 0 could run, as "0-5,8"; "" without such threads.
struct RankCores {
  std::string computing;
  std::string input;
  std::string helpers;
};

constexpr uint32_t kIterationsMin = 5;

struct RunResult {
  std::string variant;
  BenchRunKind kind = BenchRunKind::kTrain;
  uint32_t repetition = 0;
  std::string error;  // "" or: it could not be made, the same on every rank
  // [iterations] of all ranks together (report/iteration_figures.h): of kTrain by
  // RankJoin::kLastEnd, of kAlone by kQuickest; of kIdle and of `none` by kSlowest, because no rank
  // waits for another
  std::vector<double> iteration_ms;
  std::vector<RankCost> ranks;
  std::map<uint64_t, uint64_t> sizes;  // of rank 0: bytes -> collectives of the run
  RankCores cores;
  std::vector<std::string> description;
  std::optional<PlanPrediction> prediction;   // of the plan at the end of the run, if it is by time
  std::vector<TransferFigure> untried_sizes;  // of rank 0
  bool is_disturbed = false;                  // a neighbour had more than the limit

  double neighbour_cores() const;  // of the machine with the most
};

// The objects and options that all runs share.
struct RunStage {
  ranks::Group& group;
  MPI_Comm communicator = MPI_COMM_NULL;
  const LayerNetwork& network;
  Gradients& gradients;
  Workload& workload;
  SyncSettings settings;
  Placement placement;  // of this rank, in runs of variants that are pinned
  uint32_t warmup_count = 3;
  uint32_t iteration_count = 30;  // at most; a run ends earlier after run_seconds_max
  double run_seconds_max = 10;    // but not before kIterationsMin
  double neighbour_limit = 0.1;   // cores
};

// Collective.
// Errors: those of the variant during a run; kInternal  a sum is wrong
Result<RunResult> RunVariant(const RunStage& stage, const Variant& variant, BenchRunKind kind,
                             uint32_t repetition);

// A barrier. A waiting rank sleeps, so it takes no core from computing ranks.
Status SleepingMeeting(MPI_Comm communicator);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_SYNC_RUN_H_
