// bench/sync/input_load.h - threads that prepare batches while others compute, emulated.
#ifndef LMDBIO_BENCH_SYNC_INPUT_LOAD_H_
#define LMDBIO_BENCH_SYNC_INPUT_LOAD_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace lmdbio::bench {

// A thread prepares one batch in this time, if not one in each iteration.
constexpr auto kInputPeriod = std::chrono::milliseconds(10);

// The data of the work loop (work_loop.h).
std::vector<uint64_t> WorkWords();

struct InputOptions {
  uint32_t thread_count = 0;     // 0: no load
  uint64_t units_per_batch = 0;  // of work (work_loop.h)
  // Each thread prepares one batch in each iteration, whatever an iteration takes. Otherwise it
  // prepares one in each kInputPeriod.
  bool is_by_iteration = false;
};

// Threads: its own, from the constructor to the destructor. The const functions from any.
class InputLoad {
 public:
  explicit InputLoad(const InputOptions& options);
  ~InputLoad();
  InputLoad(const InputLoad&) = delete;
  InputLoad& operator=(const InputLoad&) = delete;

  // With is_by_iteration: waits for the batches of the last iteration, as a trainer does that needs
  // them now, and has the threads prepare the next ones. Otherwise without effect.
  void BeginIteration();

  // Batches of all threads until now.
  uint64_t batch_count() const;

  const std::vector<pid_t>& threads() const { return thread_numbers_; }

 private:
  using Clock = std::chrono::steady_clock;
  void Run();
  void PrepareBatch(const std::vector<std::byte>& source, std::vector<std::byte>& batch);
  bool AwaitIteration(uint64_t& done_number);

  const InputOptions options_;
  const std::vector<uint64_t> words_;  // for the work loop
  std::atomic<uint64_t> checksum_{0};  // keeps the compiler from removing the work

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  uint64_t iteration_number_ = 0;
  uint32_t missing_count_ = 0;  // batches of this iteration that are not done
  uint64_t batch_count_ = 0;

  std::vector<std::thread> threads_;
  std::vector<pid_t> thread_numbers_;
};

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_INPUT_LOAD_H_
