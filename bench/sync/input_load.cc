#include "bench/sync/input_load.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "bench/sync/thread_clocks.h"
#include "bench/sync/work_loop.h"

namespace lmdbio::bench {
namespace {

// Large enough that the copy disturbs the caches of the computing threads, as a real batch does.
constexpr size_t kBatchBytes = size_t{1} << 20;

}  // namespace

std::vector<uint64_t> WorkWords() {
  std::vector<uint64_t> words(SYNC_WORK_WORDS);
  sync_work_fill(words.data());
  return words;
}

InputLoad::InputLoad(const InputOptions& options) : options_(options), words_(WorkWords()) {
  const std::vector<pid_t> before = ThreadsOfProcess();
  for (uint32_t i = 0; i < options.thread_count; ++i) threads_.emplace_back([this] { Run(); });
  thread_numbers_ = ThreadsSince(before);
}

InputLoad::~InputLoad() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void InputLoad::BeginIteration() {
  if (!options_.is_by_iteration) return;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return missing_count_ == 0; });
    ++iteration_number_;
    missing_count_ = options_.thread_count;
  }
  changed_.notify_all();
}

std::chrono::nanoseconds InputLoad::BusyTime() const {
  const std::lock_guard lock(mutex_);
  if (busy_count_ == 0) return busy_time_;
  return busy_time_ + (Clock::now() - busy_since_);
}

uint64_t InputLoad::batch_count() const {
  const std::lock_guard lock(mutex_);
  return batch_count_;
}

// A thread that is late for its period does not catch up.
void InputLoad::Run() {
  const std::vector<std::byte> source(kBatchBytes, std::byte{7});
  std::vector<std::byte> batch(kBatchBytes);
  uint64_t done_number = 0;
  auto next = Clock::now();
  while (AwaitIteration(done_number)) {
    PrepareBatch(source, batch);
    if (options_.is_by_iteration) continue;
    next = std::max(next + kInputPeriod, Clock::now());
    std::this_thread::sleep_until(next);
  }
}

// Returns whether there is another batch to prepare.
bool InputLoad::AwaitIteration(uint64_t& done_number) {
  std::unique_lock lock(mutex_);
  if (!options_.is_by_iteration) return !is_ending_;
  changed_.wait(lock, [&] { return is_ending_ || iteration_number_ != done_number; });
  done_number = iteration_number_;
  return !is_ending_;
}

// A copy of a batch and some work on it. Overlapping batches of several threads count once in the
// busy time.
void InputLoad::PrepareBatch(const std::vector<std::byte>& source, std::vector<std::byte>& batch) {
  {
    const std::lock_guard lock(mutex_);
    if (busy_count_++ == 0) busy_since_ = Clock::now();
  }
  std::memcpy(batch.data(), source.data(), batch.size());
  checksum_ +=
      sync_work(words_.data(), options_.units_per_batch, static_cast<uint64_t>(batch.back()));
  {
    const std::lock_guard lock(mutex_);
    ++batch_count_;
    if (--busy_count_ == 0) busy_time_ += Clock::now() - busy_since_;
    if (!options_.is_by_iteration || --missing_count_ > 0) return;
  }
  changed_.notify_all();
}

void InputWindow::Open() {
  busy_before_ = input_.BusyTime();
  is_open_.store(true);
}

void InputWindow::OnTransfer() {
  if (Close()) ++early_count_;
}

// Returns whether it was open.
bool InputWindow::Close() {
  if (!is_open_.exchange(false)) return false;
  total_ns_ += (input_.BusyTime() - busy_before_).count();
  return true;
}

}  // namespace lmdbio::bench
