#include "lmdbio/sync/engine/counter_publisher.h"

namespace lmdbio::sync {

// The helper thread counts in `current_` without a lock and copies it as a whole. So a reader sees
// the numbers of one point in time, and counting itself takes no lock.
void CounterPublisher::Publish() {
  const ExecutorCounters& executed = executor_.counters();
  current_.collective_count = executed.collective_count;
  current_.collective_bytes = executed.collective_bytes;
  current_.collective_bytes_min = executed.collective_bytes_min;
  current_.collective_bytes_max = executed.collective_bytes_max;
  const StagingCounters staged = executor_.staging_counters();
  current_.device_tensor_count = staged.tensor_count;
  current_.device_out_bytes = staged.out_bytes;
  current_.device_in_bytes = staged.in_bytes;
  current_.device_wait_ns = staged.wait_ns;
  const ArenaCounters reduced = executor_.arena_counters();
  current_.device_copy_count = staged.copy_count + reduced.copy_count;
  current_.device_reduced_count = reduced.tensor_count;
  current_.device_reduced_bytes = reduced.bytes;
  const std::lock_guard lock(mutex_);
  published_ = current_;
}

void CounterPublisher::WatchThisThread() {
  const std::lock_guard lock(mutex_);
  thread_watch_.emplace();
}

SyncCounters CounterPublisher::Read() const {
  const std::lock_guard lock(mutex_);
  SyncCounters counters = published_;
  if (!thread_watch_) return counters;
  if (const auto usage = thread_watch_->Read()) {
    counters.thread_cpu_ns = usage->cpu_ns;
    counters.thread_run_delay_ns = usage->run_delay_ns;
  }
  return counters;
}

}  // namespace lmdbio::sync
