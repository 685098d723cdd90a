#include "bench/sync/input_load.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

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

InputLoad::InputLoad(uint32_t thread_count, uint64_t units_per_batch)
    : units_per_batch_(units_per_batch), words_(WorkWords()) {
  for (uint32_t i = 0; i < thread_count; ++i) threads_.emplace_back([this] { PrepareBatches(); });
}

InputLoad::~InputLoad() {
  is_ending_ = true;
  for (std::thread& thread : threads_) thread.join();
}

// A copy of a batch and some work on it in each period. A thread that is late does not catch up.
void InputLoad::PrepareBatches() {
  const std::vector<std::byte> source(kBatchBytes, std::byte{7});
  std::vector<std::byte> batch(kBatchBytes);
  auto next = std::chrono::steady_clock::now();
  while (!is_ending_) {
    std::memcpy(batch.data(), source.data(), batch.size());
    checksum_ += sync_work(words_.data(), units_per_batch_, static_cast<uint64_t>(batch.back()));
    next = std::max(next + kInputPeriod, std::chrono::steady_clock::now());
    std::this_thread::sleep_until(next);
  }
}

}  // namespace lmdbio::bench
