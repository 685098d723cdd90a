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

  // The time until now in which at least one thread has prepared a batch, also without a core.
  std::chrono::nanoseconds BusyTime() const;

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
  uint32_t busy_count_ = 0;     // threads that prepare a batch
  uint64_t batch_count_ = 0;
  Clock::time_point busy_since_;
  std::chrono::nanoseconds busy_time_{0};  // until busy_since_

  std::vector<std::thread> threads_;
  std::vector<pid_t> thread_numbers_;
};

// How long threads prepare input while layers are computed and no gradient has been transferred: in
// this time a helper thread that takes cores delays the layers most. All iterations together.
//
// Source: dissertation 6.4.2 (CIS window); Pumma et al. V-B (LIS window).
class InputWindow {
 public:
  // input  must outlive this
  explicit InputWindow(const InputLoad& input) : input_(input) {}

  // An iteration begins. Threads: one
  void Open();
  // A transfer of gradients begins. Threads: any
  void OnTransfer();
  // All layers are computed. The window ends with the first of these two events of an iteration.
  void OnComputed() { Close(); }

  std::chrono::nanoseconds total() const { return std::chrono::nanoseconds(total_ns_.load()); }
  // Iterations in which a transfer began before all layers were computed.
  uint64_t early_count() const { return early_count_.load(); }

 private:
  bool Close();

  const InputLoad& input_;
  std::chrono::nanoseconds busy_before_{0};
  std::atomic<bool> is_open_{false};  // its changes order those of busy_before_
  std::atomic<int64_t> total_ns_{0};
  std::atomic<uint64_t> early_count_{0};
};

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_INPUT_LOAD_H_
