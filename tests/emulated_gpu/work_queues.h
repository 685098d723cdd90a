// tests/emulated_gpu/work_queues.h - the streams of emulated devices.
//
// Each stream is a queue. Its first operation runs when its condition holds. Of all operations that
// may run, a seed draws the next, so any order that a device could take comes up under some seed.
// No operation runs by itself: they run while the host waits or asks, or when a queue becomes long.
#ifndef LMDBIO_TESTS_EMULATED_GPU_WORK_QUEUES_H_
#define LMDBIO_TESTS_EMULATED_GPU_WORK_QUEUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "tests/support/random.h"

namespace lmdbio::test {

struct QueuedWork {
  std::function<bool()> may_run;  // none: always
  std::function<void()> run;
};

// Not for several threads at once.
class WorkQueues {
 public:
  using Id = uint64_t;

  explicit WorkQueues(uint64_t seed) : random_(seed) {}

  // id  of no other stream
  void Open(Id id, int ordinal) { streams_[id] = {.ordinal = ordinal, .work = {}}; }
  bool Has(Id id) const;
  int OrdinalOf(Id id) const { return streams_.at(id).ordinal; }
  // Work that is queued still runs.
  void Close(Id id);
  void Enqueue(Id id, QueuedWork work);
  // The work of this stream would go into a graph. It runs all the same.
  void Capture(Id id) { streams_.at(id).is_captured = true; }
  bool IsCaptured(Id id) const { return streams_.at(id).is_captured; }
  bool HasCaptured() const;
  bool IsEmpty(Id id) const { return streams_.at(id).work.empty(); }
  // Runs one operation of any stream. False if none may run.
  bool Step();
  // Runs up to two operations, and one at least if one may run.
  void Look();

  // A seed for what one operation draws.
  uint64_t Draw() { return random_.Next(); }

  size_t QueuedCount() const;
  // Of the program: streams that are not closed and are not a default stream.
  uint64_t OpenCount() const;
  // Forgets streams and work of a device. Returns: how many streams were open
  uint64_t DropAll(int ordinal);
  // Forgets the work of a device, whose context has ended.
  void DropWork(int ordinal);
  void SetSeed(uint64_t seed) { random_ = Random(seed); }

  // The default stream of a device.
  static Id DefaultOf(int ordinal) { return static_cast<Id>(ordinal) + 1; }
  static constexpr Id kFirstId = 0x1000;  // of streams that a program makes

 private:
  static constexpr size_t kLongQueue = 64;

  struct Queue {
    int ordinal = 0;
    std::deque<QueuedWork> work;
    bool is_closed = false;
    bool is_captured = false;
  };

  std::map<Id, Queue> streams_;
  Random random_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_GPU_WORK_QUEUES_H_
