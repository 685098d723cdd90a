// lmdbio/trace/timeline.h - what this rank did when, as a trace that Chrome and Perfetto show.
//
// One file for each rank, PATH.rank, an event on each line. `lmdbio-timeline` merges the files of
// all ranks, and reports.
//
//   row of a tensor   negotiate [submitted .. all ranks have]  allreduce [.. the program was told]
//   helper thread     round            bucket [pack  transfer [the collective call]  unpack]
//   program's waits   wait
//
// What all tensors of a bucket go through together is written once, in the bucket, which a tensor's
// row refers to by its number: a job's file is small, and a file costs by its bytes.
//
// Events are kept in memory as they are, and become text when they go to the file, many at a time:
// when the memory is full, by the thread that finds it so, and when the helper thread has nothing
// else to do. There is no thread for that. A file whose process was killed lacks its end, which
// readers of such traces forgive.
//
// Source: docs/sync.md "Observability".
#ifndef LMDBIO_TRACE_TIMELINE_H_
#define LMDBIO_TRACE_TIMELINE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/trace/timeline_writer.h"

namespace lmdbio::trace {

struct TimelineOptions {
  std::string path = {};  // "trace" makes "trace.3" on rank 3; what was there is overwritten
  int rank = 0;
  int size = 1;
  std::string host = {};          // "": as the kernel calls it
  size_t buffer_bytes = 1 << 20;  // for events; at least 64 KiB; twice that is allocated, at once
};

// A tensor's way through a timeline, from Begin to End. Kept by whoever tells of it.
struct TimelineTensor {
  uint32_t row = TimelineEvent::kNoRow;  // kNoRow: it is not drawn
  bool is_negotiating = false;
  bool is_agreed = false;
  int64_t agreed_ns = 0;
  uint64_t bucket = 0;
};

// Times are those of std::chrono::steady_clock, in nanoseconds since its epoch, and do not go back
// within a row.
// Threads: any, for every method but the destructor.
// Cost: a lock and a line of memory for each event; later its text, 40 to 130 bytes, 250 for a
// tensor from its submission to its end
class Timeline {
 public:
  // Errors: kIo               the file cannot be written; names it and errno
  //         kInvalidArgument  buffer_bytes
  static Result<std::unique_ptr<Timeline>> Open(const TimelineOptions& options);

  // Closes, and forgets how that went.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // A tensor was submitted: `negotiate` begins. How often that has happened to this name goes into
  // the file, so that the tool finds the rank that was last to submit.
  TimelineTensor Begin(std::string_view name, uint64_t bytes, int64_t steady_ns);
  // All ranks have submitted it, and `negotiate` ends: it goes with this bucket, to which Transfer
  // and Bucket belong, by its number. Again if that bucket is declined.
  void Agree(TimelineTensor& tensor, uint64_t bucket, int64_t steady_ns);
  // The tensor is done, or has failed.
  // operation  what its time since Agree is called: "allreduce", ...; must outlive the timeline
  void End(TimelineTensor& tensor, std::string_view operation, int64_t steady_ns);

  // The helper thread was in a round of control exchanges.
  void Round(uint64_t number, int64_t begin_ns, int64_t end_ns);

  // A call of the collectives, one of those that move a bucket. Written before it.
  void Transfer(uint64_t bytes, int64_t begin_ns, int64_t end_ns);
  // One bucket, from its packing until it is unpacked.
  struct BucketSpan {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint64_t tensor_count = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  void Bucket(const BucketSpan& bucket);

  // A thread of the program waited for a tensor: what is exposed of the communication. After the
  // first, what took less than kLookNs is not written: it was there already.
  static constexpr int64_t kLookNs = 1000;
  void Waited(std::string_view tensor, int64_t begin_ns, int64_t end_ns);

  // Something happened in the helper thread: "plan adopted", ...
  // what  must outlive the timeline
  void Mark(std::string_view what, int64_t steady_ns);

  // For the helper thread before it sleeps: writes if there is much to write, or some that is older
  // than a second.
  // Errors: kIo  the file cannot be written any more. Said once; the timeline has ended, what is
  //              in the file stays good, and every further call does nothing
  Status FlushIfDue(int64_t steady_ns);
  // Writes what there is.
  // Errors: as FlushIfDue
  Status Flush();
  // Writes what there is and the end of the file. Every further call does nothing.
  // Errors: as FlushIfDue
  Status Close();

  const std::string& path() const { return writer_.path(); }  // of the file, with the rank

  // Tensors of more names than this get no row.
  static constexpr size_t kRowsMax = 1 << 14;

 private:
  struct NameHash {  // of names in any form
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  struct Row {
    uint32_t number = 0;
    bool is_named = false;  // in the file, or will be
    uint64_t begin_count = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  Timeline(const TimelineOptions& options, std::string path, UniqueFd file);
  bool HasRoom(Lock& lock);
  void Add(const TimelineEvent& event);
  void EndPhase(TimelineTensor& tensor, std::string_view operation, int64_t at_ns);
  void WriteOut(Lock& lock);
  Status FlushLocked(Lock& lock);
  Status TellFailure();

  const size_t event_count_max_;

  std::mutex mutex_;  // for all below
  std::condition_variable written_;
  std::vector<TimelineEvent> events_;   // [event_count_max_], and some to end what has begun
  std::vector<TimelineEvent> writing_;  // the same; on their way to the file
  bool is_writing_ = false;             // whose thread has writing_ and writer_
  bool is_over_ = false;                // closed, or failed
  bool has_waits_ = false;
  uint64_t lost_count_ = 0;  // events for which there was no room while the file was written
  int64_t last_write_ns_;
  std::optional<Error> failure_;  // until somebody was told
  std::unordered_map<std::string, Row, NameHash, std::equal_to<>> rows_;
  TimelineWriter writer_;
};

}  // namespace lmdbio::trace
#endif  // LMDBIO_TRACE_TIMELINE_H_
