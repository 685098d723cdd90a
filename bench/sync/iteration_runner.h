// bench/sync/iteration_runner.h - one iteration of a run on one rank: computing, gradients, waits.
#ifndef LMDBIO_BENCH_SYNC_ITERATION_RUNNER_H_
#define LMDBIO_BENCH_SYNC_ITERATION_RUNNER_H_

#include <cstdint>
#include <string_view>

#include "bench/sync/gradient_sync.h"
#include "bench/sync/input_load.h"
#include "bench/sync/layers/layer_network.h"
#include "bench/sync/workload.h"
#include "lmdbio/base/status.h"

namespace lmdbio::bench {

enum class BenchRunKind {
  kTrain,  // iterations as in training
  kIdle,   // computing beside an idle variant: the cost of its existence
  kAlone,  // communication without computing
};
std::string_view NameOf(BenchRunKind kind);

// All of them outlive the runner.
struct IterationParts {
  const LayerNetwork& network;
  Gradients& gradients;
  Workload& workload;
  InputWindow& window;
  GradientSync* sync = nullptr;  // null: gradients are written, and not reduced
  int rank = 0;
  int rank_count = 1;
};

// Runs iterations of one kind.
//
//   kTrain            forward pass; backward pass, which submits each gradient; wait for all
//   kTrain, windowed  backward pass; the next forward pass, in which a layer waits for its own
//                     gradients
//   kIdle             as kTrain, but the variant gets no gradient
//   kAlone            submit all gradients at once; wait for all
//
// An iteration of each kind waits for all the gradients that it submits, and only for these. So an
// iteration with windows has the same parts as one without, in another order.
//
// Threads: one
class IterationRunner {
 public:
  // is_windowed  as Variant. Requires: a `sync` with Wait
  IterationRunner(const IterationParts& parts, BenchRunKind kind, bool is_windowed)
      : parts_(parts), kind_(kind), is_windowed_(is_windowed) {}

  // Returns the time in milliseconds. The check of the sums follows it and is no part of it.
  // iteration  its number, from which the gradients are made
  // Errors: those of the variant; kInternal  a sum or a checksum is wrong
  Result<double> Iterate(uint64_t iteration);

  // Of the computing, the same after each iteration; 0: nothing was computed.
  uint64_t checksum() const { return checksum_; }

 private:
  bool has_gradients() const { return kind_ != BenchRunKind::kIdle && parts_.sync != nullptr; }
  uint64_t Compute(uint64_t iteration);
  Status CheckWork(uint64_t checksum);

  const IterationParts parts_;
  const BenchRunKind kind_;
  const bool is_windowed_;
  uint64_t checksum_ = 0;
};

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_ITERATION_RUNNER_H_
