// bench/sync/workload.h - the training of a network, emulated: real work, real gradients.
//
// Threads compute the layers forward and backward, in an order that the edges of the network
// permit. The cost of a layer is the same in every iteration. The gradients of a layer are written
// when its backward work is done. The threads really compute: sleeping threads would not show that
// a helper thread takes their core. With an accelerator, the thread only waits for the layers and
// writes the gradients.
#ifndef LMDBIO_BENCH_SYNC_WORKLOAD_H_
#define LMDBIO_BENCH_SYNC_WORKLOAD_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "bench/sync/input_load.h"
#include "bench/sync/layers/layer_network.h"
#include "bench/sync/layers/layer_schedule.h"
#include "lmdbio/base/status.h"

namespace lmdbio::bench {

// The units of work (work_loop.h) that this core executes in a second, without other load.
double MeasureUnitsPerSecond();

// The gradients of one rank, at addresses of their own as a framework would have them.
class Gradients {
 public:
  explicit Gradients(const LayerNetwork& network);

  std::span<float> tensor(uint32_t index) const { return tensors_[index]; }
  uint32_t tensor_count() const { return static_cast<uint32_t>(tensors_.size()); }

  // Moves a tensor to other memory, or all tensors back to their own.
  // place  [as many values] outlives its use
  void Move(uint32_t index, float* place) { tensors_[index] = {place, tensors_[index].size()}; }
  void MoveBack() { tensors_ = own_; }

  // Writes what rank `rank` contributes in an iteration.
  void Fill(uint32_t index, int rank, uint64_t iteration);
  // Checks that some elements of each tensor are the sum over all ranks.
  // Errors: kInternal  names the first tensor that is not
  Status Check(const LayerNetwork& network, int rank_count, uint64_t iteration) const;

 private:
  struct Free {
    void operator()(float* memory) const;
  };
  std::unique_ptr<float[], Free> memory_;
  std::vector<std::span<float>> tensors_;
  std::vector<std::span<float>> own_;  // the same, in memory_
};

struct WorkloadOptions {
  uint64_t units = 0;    // of work in an iteration: a third forward, the rest backward
  uint32_t threads = 1;  // that compute
  // > 0: an accelerator computes so many units in a second, one layer after the other, while the
  // thread sleeps. Requires threads = 1
  double accelerator_units_per_second = 0;
  // The threads compute layers in a random order that respects the edges, so ranks have their
  // gradients in different orders. Empty: the order of the network.
  std::optional<uint64_t> shuffle_seed = std::nullopt;
  // [layers] otherwise: of several layers that can be computed in a backward pass, the first one
  // here is taken. Empty: from the last layer to the first one
  std::vector<uint32_t> backward_order = {};
  InputOptions input = {};  // threads that prepare batches meanwhile
};

// The calls for a layer, in the thread that computes it.
struct LayerCalls {
  // Before its forward work; may be empty. Returns whether the work had to wait for this.
  std::function<bool(const Layer&)> needed;
  // After its backward work.
  std::function<void(const Layer&)> ready;
};

// Computes one layer after the other, in the time that a core of its own would take.
class Accelerator {
 public:
  explicit Accelerator(double units_per_second) : units_per_second_(units_per_second) {}

  // No work begins before now.
  void Begin();
  // Begins after the units before, and sleeps until it is done. Returns a checksum.
  uint64_t Compute(uint64_t units);

 private:
  double units_per_second_;
  std::chrono::steady_clock::time_point done_;  // with all units so far
};

// Threads: Iterate from one thread. The object has threads of its own.
class Workload {
 public:
  Workload(const LayerNetwork& network, const WorkloadOptions& options);
  ~Workload();

  // One iteration: the pass in the direction `first`, and then the other one. Returns a checksum of
  // the work, the same in every iteration.
  uint64_t Iterate(PassDirection first, const LayerCalls& calls);

  const InputLoad& input() const { return input_; }
  // Those that compute layers, without the thread that calls Iterate.
  const std::vector<pid_t>& helper_threads() const { return helper_numbers_; }

 private:
  uint64_t RunPass(PassDirection direction, const LayerCalls& calls);
  void ComputeLayers();
  uint64_t UnitsOf(uint32_t index) const;
  uint64_t Compute(uint32_t index);
  uint64_t ComputeWithCalls(uint32_t index);
  void RunHelper();

  const LayerNetwork& network_;
  std::optional<Accelerator> accelerator_;
  std::vector<uint64_t> words_;
  std::array<std::vector<uint64_t>, 2> units_;  // [forward, backward][layers]

  std::mutex mutex_;
  std::condition_variable changed_;
  LayerSchedule schedule_;             // of the present pass
  const LayerCalls* calls_ = nullptr;  // of the present pass
  uint64_t pass_number_ = 0;
  bool is_ending_ = false;
  uint32_t busy_helpers_ = 0;
  uint64_t checksum_ = 0;
  std::vector<std::thread> helpers_;
  std::vector<pid_t> helper_numbers_;

  InputLoad input_;
};

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_WORKLOAD_H_
