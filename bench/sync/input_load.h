// bench/sync/input_load.h - threads that prepare batches while others compute, emulated.
#ifndef LMDBIO_BENCH_SYNC_INPUT_LOAD_H_
#define LMDBIO_BENCH_SYNC_INPUT_LOAD_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace lmdbio::bench {

// A thread prepares one batch in this time.
constexpr auto kInputPeriod = std::chrono::milliseconds(10);

// The data of the work loop (work_loop.h).
std::vector<uint64_t> WorkWords();

// Threads: its own, from the constructor to the destructor.
class InputLoad {
 public:
  // thread_count     0: no load
  // units_per_batch  of work (work_loop.h); in each kInputPeriod, by each thread
  InputLoad(uint32_t thread_count, uint64_t units_per_batch);
  ~InputLoad();
  InputLoad(const InputLoad&) = delete;
  InputLoad& operator=(const InputLoad&) = delete;

 private:
  void PrepareBatches();

  const uint64_t units_per_batch_;
  const std::vector<uint64_t> words_;  // for the work loop
  std::atomic<bool> is_ending_{false};
  std::atomic<uint64_t> checksum_{0};  // keeps the compiler from removing the work
  std::vector<std::thread> threads_;
};

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_INPUT_LOAD_H_
