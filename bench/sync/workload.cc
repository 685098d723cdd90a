#include "bench/sync/workload.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "bench/sync/thread_clocks.h"
#include "bench/sync/work_loop.h"

namespace lmdbio::bench {
namespace {

using Clock = std::chrono::steady_clock;

// For each result of the forward pass, a backward pass computes two: the gradients of the weights
// and of the inputs.
constexpr double kForwardShare = 1.0 / 3;
constexpr size_t kTensorAlignment = 64;
constexpr size_t kTensorAlignmentFloats = kTensorAlignment / sizeof(float);

// The units of each layer, by its cost. Rounded so that their sum is exact.
std::vector<uint64_t> Divide(const LayerNetwork& network, double units) {
  std::vector<uint64_t> parts;
  double sum = 0;
  uint64_t given = 0;
  for (const Layer& layer : network.layers) {
    sum += layer.cost;
    const auto up_to_here = static_cast<uint64_t>(std::llround(sum * units));
    parts.push_back(up_to_here - given);
    given = up_to_here;
  }
  return parts;
}

// Whole numbers that are small enough to be added up exactly.
float Share(uint32_t index, uint64_t iteration, size_t element) {
  return static_cast<float>(1 + iteration % 5 + index % 3 + element % 16);
}

}  // namespace

// The fastest of the tries, because a disturbance only makes a try slower.
double MeasureUnitsPerSecond() {
  const std::vector<uint64_t> words = WorkWords();
  constexpr uint64_t kUnits = 2000;
  double best = 0;
  uint64_t sum = 0;
  for (int i = 0; i < 30; ++i) {
    const auto start = Clock::now();
    sum += sync_work(words.data(), kUnits, sum);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(kUnits) / seconds);
  }
  return sum == 0 ? 0 : best;  // the sum is never 0; now no compiler leaves the work away
}

void Gradients::Free::operator()(float* memory) const {
  ::operator delete[](memory, std::align_val_t(4096));
}

// One block of memory in which each tensor begins at a cache line, so that no two threads write to
// one line.
Gradients::Gradients(const LayerNetwork& network) {
  size_t floats = 0;
  std::vector<size_t> starts;
  for (const GradientTensor& tensor : network.tensors) {
    starts.push_back(floats);
    floats += (tensor.count + kTensorAlignmentFloats - 1) / kTensorAlignmentFloats *
              kTensorAlignmentFloats;
  }
  void* memory = ::operator new[](floats * sizeof(float), std::align_val_t(4096));
  memory_.reset(static_cast<float*>(memory));
  std::fill_n(memory_.get(), floats, 0.0f);
  for (size_t i = 0; i < starts.size(); ++i) {
    tensors_.emplace_back(memory_.get() + starts[i], network.tensors[i].count);
  }
  own_ = tensors_;
}

// Rank r writes (r + 1) times a whole number, so the sum over P ranks is P (P + 1) / 2 times it.
// All these numbers are exact in float32, in any order of addition.
void Gradients::Fill(uint32_t index, int rank, uint64_t iteration) {
  const std::span<float> values = tensors_[index];
  const float factor = static_cast<float>(rank + 1);
  for (size_t i = 0; i < values.size(); ++i) values[i] = factor * Share(index, iteration, i);
}

// First and last elements find wrong bounds, the inner ones find chunks that were skipped.
Status Gradients::Check(const LayerNetwork& network, int rank_count, uint64_t iteration) const {
  const float factors = static_cast<float>(rank_count * (rank_count + 1) / 2);
  for (uint32_t index = 0; index < tensor_count(); ++index) {
    const std::span<float> values = tensors_[index];
    const size_t last = values.size() - 1;
    for (const size_t i : {size_t{0}, last / 3, last / 2, last - std::min<size_t>(last, 1), last}) {
      const float expected = factors * Share(index, iteration, i);
      if (values[i] == expected) continue;
      return Fail(ErrorCode::kInternal,
                  fmt::format("{}: iteration {}: element {} is {}; expected {}",
                              network.tensors[index].name, iteration, i, values[i], expected));
    }
  }
  return {};
}

void Accelerator::Begin() { done_ = std::max(done_, Clock::now()); }

uint64_t Accelerator::Compute(uint64_t units) {
  const std::chrono::duration<double> time(static_cast<double>(units) / units_per_second_);
  done_ += std::chrono::duration_cast<Clock::duration>(time);
  std::this_thread::sleep_until(done_);
  return units;
}

Workload::Workload(const LayerNetwork& network, const WorkloadOptions& options)
    : network_(network),
      words_(WorkWords()),
      schedule_(network, options.shuffle_seed, options.backward_order),
      input_(options.input) {
  const auto units = static_cast<double>(options.units);
  units_ = {Divide(network, units * kForwardShare), Divide(network, units * (1 - kForwardShare))};
  if (options.accelerator_units_per_second > 0) {
    accelerator_.emplace(options.accelerator_units_per_second);
  }
  const std::vector<pid_t> before = ThreadsOfProcess();
  // The thread that calls Iterate computes, too.
  for (uint32_t i = 1; i < options.threads; ++i) helpers_.emplace_back([this] { RunHelper(); });
  helper_numbers_ = ThreadsSince(before);
}

Workload::~Workload() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : helpers_) thread.join();
}

uint64_t Workload::Iterate(PassDirection first, const LayerCalls& calls) {
  if (accelerator_) accelerator_->Begin();
  // The factor makes the checksum depend on the pass in which a layer was computed.
  if (first == PassDirection::kForward) {
    const uint64_t forward = RunPass(PassDirection::kForward, calls);
    return forward + 3 * RunPass(PassDirection::kBackward, calls);
  }
  const uint64_t backward = RunPass(PassDirection::kBackward, calls);
  return RunPass(PassDirection::kForward, calls) + 3 * backward;
}

// The caller and all helper threads compute layers until none is left. The pass is over when all of
// them have left it.
uint64_t Workload::RunPass(PassDirection direction, const LayerCalls& calls) {
  if (direction == PassDirection::kForward) {
    input_.BeginIteration();
    // The batch may have been late.
    if (accelerator_) accelerator_->Begin();
  }
  {
    const std::lock_guard lock(mutex_);
    schedule_.Begin(direction);
    calls_ = &calls;
    ++pass_number_;
    checksum_ = 0;
    busy_helpers_ = static_cast<uint32_t>(helpers_.size());
  }
  changed_.notify_all();
  ComputeLayers();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return busy_helpers_ == 0; });
  return checksum_;
}

// The lock is held except for the work itself. A thread waits if layers are left and none of them
// can be computed, because another thread computes one before them.
void Workload::ComputeLayers() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return schedule_.has_computable() || schedule_.is_over(); });
    if (!schedule_.has_computable()) return;
    const uint32_t index = schedule_.Take();
    const Layer& layer = network_.layers[index];
    lock.unlock();
    const uint64_t sum = ComputeWithCalls(index);
    lock.lock();
    checksum_ += sum;
    if (schedule_.Finish(layer) && !helpers_.empty()) changed_.notify_all();
  }
}

// Without the lock: with an accelerator there is one thread. And the direction stays the same as
// long as a pass has layers, and so do the calls.
uint64_t Workload::ComputeWithCalls(uint32_t index) {
  const Layer& layer = network_.layers[index];
  const bool is_forward = schedule_.direction() == PassDirection::kForward;
  // The accelerator had nothing to do until the call returned. Otherwise it has gone on while the
  // thread was late.
  const bool has_waited = is_forward && calls_->needed && calls_->needed(layer);
  if (has_waited && accelerator_) accelerator_->Begin();
  const uint64_t sum = Compute(index);
  if (!is_forward) calls_->ready(layer);
  return sum;
}

uint64_t Workload::Compute(uint32_t index) {
  const uint64_t units = UnitsOf(index);
  if (accelerator_) return accelerator_->Compute(units);
  return sync_work(words_.data(), units, index + 1);
}

uint64_t Workload::UnitsOf(uint32_t index) const {
  return units_[schedule_.direction() == PassDirection::kForward ? 0 : 1][index];
}

// `pass_number_` shows a pass that this thread has not joined, also if that pass is over already.
void Workload::RunHelper() {
  uint64_t done_number = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return is_ending_ || pass_number_ != done_number; });
      if (is_ending_) return;
      done_number = pass_number_;
    }
    ComputeLayers();
    {
      const std::lock_guard lock(mutex_);
      --busy_helpers_;
    }
    changed_.notify_all();
  }
}

}  // namespace lmdbio::bench
