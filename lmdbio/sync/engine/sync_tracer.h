// lmdbio/sync/engine/sync_tracer.h - records the events of the helper thread: always in the flight
// recorder, and in a timeline if there is one.
//
// Source: docs/sync.md "Observability".
#ifndef LMDBIO_SYNC_ENGINE_SYNC_TRACER_H_
#define LMDBIO_SYNC_ENGINE_SYNC_TRACER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/engine/task.h"
#include "lmdbio/trace/flight_recorder.h"
#include "lmdbio/trace/timeline.h"

namespace lmdbio::sync {

// The present time by the clock of the timeline and the recorder.
int64_t SteadyNanoseconds();

// Threads: the helper thread, except Waited and Lines.
class SyncTracer {
 public:
  // timeline  null: none
  explicit SyncTracer(std::unique_ptr<trace::Timeline> timeline) : timeline_(std::move(timeline)) {}

  void Submitted(Task& task);
  void Failed(Task& task);
  void Done(Task& task);
  void Stalled(const Task& task);

  // All ranks execute these tasks together, as one bucket. Null: this rank has joined.
  // Returns: the number of the bucket
  uint64_t Agreed(std::span<Task* const> tasks);
  // The calls from here on are for this bucket, of which slices were reduced before.
  void Resumed(uint64_t bucket);
  // The begin and the end of a collective call for these tasks, some of the bucket or all.
  void Transferring(std::span<Task* const> tasks, uint64_t bytes);
  void Transferred(uint64_t bytes);
  // A step of the bucket is over that began with Agreed or Resumed.
  void Unpacked(std::span<Task* const> tasks);
  // Values of these tensors on a GPU, those of a chunk, have reached the host; since `begin_ns`
  // this thread has waited for them.
  void Staged(std::span<Task* const> tasks, uint64_t bytes, int64_t begin_ns);

  void Round(uint64_t number, int64_t begin_ns);
  void PlanAdopted(uint64_t epoch);
  void PlanEnded(uint64_t epoch);

  // A thread of the program has waited from `begin_ns` until now.
  void Waited(const std::string& name, int64_t begin_ns);

  // Writes the timeline, if due. Called before the helper thread sleeps.
  // Errors: kIo  once; the timeline has ended
  Status Rest();
  // Ends the timeline.
  // Errors: kIo  the file may be incomplete
  Status Close();
  // The last events, oldest first.
  std::vector<std::string> Lines() const { return recorder_.Lines(); }

 private:
  void End(Task& task);
  void BeginStep(uint64_t bucket, int64_t now_ns);

  trace::FlightRecorder recorder_;
  std::unique_ptr<trace::Timeline> timeline_;
  uint64_t collective_count_ = 0;
  uint64_t bucket_count_ = 0;
  uint64_t bucket_ = 0;  // the number of the one in progress
  int64_t transfer_began_ns_ = 0;
  int64_t bucket_began_ns_ = 0;
  uint64_t bucket_bytes_ = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ENGINE_SYNC_TRACER_H_
