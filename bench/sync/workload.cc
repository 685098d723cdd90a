#include "bench/sync/workload.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "bench/sync/work_loop.h"

namespace lmdbio::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kForwardShare = 1.0 / 3;
constexpr size_t kTensorAlignment = 64;
constexpr size_t kTensorAlignmentFloats = kTensorAlignment / sizeof(float);
constexpr auto kInputPeriod = std::chrono::milliseconds(10);
constexpr size_t kBatchBytes = size_t{1} << 20;

std::vector<uint64_t> WorkWords() {
  std::vector<uint64_t> words(SYNC_WORK_WORDS);
  sync_work_fill(words.data());
  return words;
}

// What all of `units` comes to for each layer; rounded so that nothing is lost.
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

void Gradients::Fill(uint32_t index, int rank, uint64_t iteration) {
  const std::span<float> values = tensors_[index];
  const float factor = static_cast<float>(rank + 1);
  for (size_t i = 0; i < values.size(); ++i) values[i] = factor * Share(index, iteration, i);
}

Status Gradients::Check(const LayerNetwork& network, int rank_count, uint64_t iteration) const {
  const float factors = static_cast<float>(rank_count * (rank_count + 1) / 2);
  for (uint32_t index = 0; index < tensor_count(); ++index) {
    const std::span<float> values = tensors_[index];
    const size_t last = values.size() - 1;
    for (const size_t i : {size_t{0}, last / 3, last / 2, last - std::min<size_t>(last, 1), last}) {
      const float expected = factors * Share(index, iteration, i);
      if (values[i] == expected) continue;
      return Fail(ErrorCode::kInternal,
                  fmt::format("{}: iteration {}, element {} is {}, not {}",
                              network.tensors[index].name, iteration, i, values[i], expected));
    }
  }
  return {};
}

Workload::Workload(const LayerNetwork& network, const WorkloadOptions& options)
    : network_(network), options_(options), words_(WorkWords()) {
  const auto units = static_cast<double>(options.units);
  forward_units_ = Divide(network, units * kForwardShare);
  backward_units_ = Divide(network, units * (1 - kForwardShare));
  if (options.shuffle_seed) chance_.seed(*options.shuffle_seed);
  for (uint32_t i = 1; i < options.threads; ++i) helpers_.emplace_back([this] { RunHelper(); });
  for (uint32_t i = 0; i < options.input_threads; ++i) {
    inputs_.emplace_back([this] { PrepareBatches(); });
  }
}

Workload::~Workload() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  is_input_ending_ = true;
  changed_.notify_all();
  for (std::thread& thread : helpers_) thread.join();
  for (std::thread& thread : inputs_) thread.join();
}

uint64_t Workload::Iterate(const std::function<void(const Layer&)>& ready) {
  const uint64_t forward = RunPass({.direction = PassDirection::kForward, .ready = nullptr});
  return forward + 3 * RunPass({.direction = PassDirection::kBackward, .ready = &ready});
}

uint64_t Workload::RunPass(const TrainingPass& pass) {
  {
    const std::lock_guard lock(mutex_);
    pass_ = pass;
    ++pass_number_;
    checksum_ = 0;
    left_count_ = network_.layers.size();
    missing_.clear();
    computable_.clear();
    for (uint32_t i = 0; i < network_.layers.size(); ++i) {
      const Layer& layer = network_.layers[i];
      const auto& before = pass.direction == PassDirection::kForward ? layer.needs : layer.gives;
      missing_.push_back(static_cast<uint32_t>(before.size()));
      if (before.empty()) computable_.push_back(i);
    }
    busy_helpers_ = static_cast<uint32_t>(helpers_.size());
  }
  changed_.notify_all();
  ComputeLayers();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return busy_helpers_ == 0; });
  return checksum_;
}

void Workload::ComputeLayers() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !computable_.empty() || left_count_ == 0; });
    if (computable_.empty()) return;
    const uint32_t index = TakeLayer();
    const Layer& layer = network_.layers[index];
    lock.unlock();
    const uint64_t sum = sync_work(words_.data(), UnitsOf(index), index + 1);
    if (pass_.ready != nullptr) (*pass_.ready)(layer);
    lock.lock();
    checksum_ += sum;
    Release(layer);
  }
}

// Requires: the lock, some layer is computable
uint32_t Workload::TakeLayer() {
  size_t place = pass_.direction == PassDirection::kForward ? 0 : computable_.size() - 1;
  if (options_.shuffle_seed) place = chance_() % computable_.size();
  const uint32_t index = computable_[place];
  computable_.erase(computable_.begin() + static_cast<std::ptrdiff_t>(place));
  return index;
}

// Requires: the lock
void Workload::Release(const Layer& layer) {
  bool has_more = --left_count_ == 0;
  for (const uint32_t next :
       pass_.direction == PassDirection::kForward ? layer.gives : layer.needs) {
    if (--missing_[next] > 0) continue;
    computable_.insert(std::lower_bound(computable_.begin(), computable_.end(), next), next);
    has_more = true;
  }
  if (has_more && !helpers_.empty()) changed_.notify_all();
}

uint64_t Workload::UnitsOf(uint32_t layer) const {
  return pass_.direction == PassDirection::kForward ? forward_units_[layer]
                                                    : backward_units_[layer];
}

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

// A copy of a batch and some work on it in each period; what is late is not made up for.
void Workload::PrepareBatches() {
  const std::vector<std::byte> source(kBatchBytes, std::byte{7});
  std::vector<std::byte> batch(kBatchBytes);
  const double seconds = options_.input_duty * std::chrono::duration<double>(kInputPeriod).count();
  const auto units = static_cast<uint64_t>(seconds * options_.units_per_second);
  auto next = Clock::now();
  while (!is_input_ending_) {
    std::memcpy(batch.data(), source.data(), batch.size());
    batch_sum_ += sync_work(words_.data(), units, static_cast<uint64_t>(batch.back()));
    ++batch_count_;
    next = std::max(next + kInputPeriod, Clock::now());
    std::this_thread::sleep_until(next);
  }
}

}  // namespace lmdbio::bench
