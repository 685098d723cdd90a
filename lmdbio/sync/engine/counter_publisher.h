// lmdbio/sync/engine/counter_publisher.h - the counters of a synchronizer, counted by its helper
// thread and read by any thread.
#ifndef LMDBIO_SYNC_ENGINE_COUNTER_PUBLISHER_H_
#define LMDBIO_SYNC_ENGINE_COUNTER_PUBLISHER_H_

#include <mutex>
#include <optional>

#include "lmdbio/base/thread_times.h"
#include "lmdbio/sync/engine/executor.h"
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::sync {

// Threads: the helper thread, except Read.
class CounterPublisher {
 public:
  // executor  its counters are part of the published ones; must outlive this
  explicit CounterPublisher(const Executor& executor) : executor_(executor) {}

  // The counters in progress, without those of the executor and of the thread.
  SyncCounters& current() { return current_; }
  // Makes the present counters visible to Read.
  void Publish();
  // From now on Read adds the processor time of the calling thread.
  void WatchThisThread();

  // The counters as last published. Threads: any
  SyncCounters Read() const;

 private:
  const Executor& executor_;
  SyncCounters current_;
  mutable std::mutex mutex_;  // of the members below
  SyncCounters published_;
  std::optional<ThreadWatch> thread_watch_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_COUNTER_PUBLISHER_H_
