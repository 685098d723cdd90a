// lmdbio/trace/timeline.h - the timeline of this rank, as a trace for Chrome and Perfetto.
//
// One file for each rank, PATH.rank, an event on each line. `lmdbio-timeline` merges the files of
// all ranks, and reports.
//
//   row of a tensor   negotiate [submitted .. by all ranks]  allreduce [.. reported to the program]
//   helper thread     round            bucket [pack  transfer [the collective call]  unpack]
//                                      bucket [copy out [from a GPU]  transfer  copy out  transfer]
//   program's waits   wait
//
// The steps that all tensors of a bucket share are written once, as steps of the bucket. The row of
// a tensor refers to the bucket by its number. This keeps the file small.
//
// Events are stored in memory and converted to text in batches. A batch is written when the memory
// is full, by the thread that finds it full, and when the helper thread is idle. There is no writer
// thread. The file of a killed process has no end, which trace viewers accept.
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
  std::string path = {};  // "trace" makes "trace.3" on rank 3; an existing file is overwritten
  int rank = 0;
  int size = 1;
  std::string host = {};          // "": the host name of the kernel
  size_t buffer_bytes = 1 << 20;  // for events; at least 64 KiB. Open allocates twice that
};

// The state of one tensor between Begin and End. The caller stores it.
struct TimelineTensor {
  uint32_t row = TimelineEvent::kNoRow;  // kNoRow: it is not drawn
  bool is_negotiating = false;
  bool is_agreed = false;
  int64_t agreed_ns = 0;
  uint64_t bucket = 0;
};

// Times are those of std::chrono::steady_clock, in nanoseconds since its epoch, and ascend within a
// row.
// Cost:    a lock and a cache line for each event; later its text of 40 to 130 bytes, or about 250
//          for a tensor from its submission to its end
// Threads: any, for every method except the destructor
class Timeline {
 public:
  // Errors: kIo               the file cannot be written; names it and errno
  //         kInvalidArgument  buffer_bytes
  static Result<std::unique_ptr<Timeline>> Open(const TimelineOptions& options);

  // Closes the file and ignores an error.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // A tensor was submitted: `negotiate` begins. The event holds the number of submissions of this
  // name, so that lmdbio-timeline finds the rank that submitted last.
  TimelineTensor Begin(std::string_view name, uint64_t bytes, int64_t steady_ns);
  // All ranks have submitted the tensor: `negotiate` ends, and the tensor belongs to the bucket of
  // this number, as the Transfer and Bucket events do. Call it again after the bucket was declined.
  void Agree(TimelineTensor& tensor, uint64_t bucket, int64_t steady_ns);
  // The tensor is done, or has failed.
  // operation  name of the span since Agree: "allreduce", ...; must outlive the timeline
  void End(TimelineTensor& tensor, std::string_view operation, int64_t steady_ns);

  // The helper thread was in a round of control exchanges.
  void Round(uint64_t number, int64_t begin_ns, int64_t end_ns);

  // One collective call for a bucket or a slice. Record it before the Bucket event.
  void Transfer(uint64_t bytes, int64_t begin_ns, int64_t end_ns);
  // The helper thread waited for values of tensors on a GPU: until the tensors were ready and the
  // values had reached the host. In a bucket, before the call that takes the values.
  void CopyOut(uint64_t bytes, int64_t begin_ns, int64_t end_ns);
  // One bucket, or a slice of it, from the start of packing to the end of unpacking. Slices of
  // other buckets may come between those of one.
  struct BucketSpan {
    uint64_t number = 0;
    uint64_t bytes = 0;
    uint64_t tensor_count = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  void Bucket(const BucketSpan& bucket);

  // A thread of the program waited for a tensor. This time is exposed communication. Except for the
  // first, waits of less than kLookNs are not written, because the tensor was already done.
  static constexpr int64_t kLookNs = 1000;
  void Waited(std::string_view tensor, int64_t begin_ns, int64_t end_ns);

  // A point event of the helper thread: "plan adopted", ...
  // `what` is its name and must outlive the timeline.
  void Mark(std::string_view what, int64_t steady_ns);

  // For the helper thread before it sleeps: writes if at least 1024 events wait, or if events wait
  // and the last write was more than a second ago.
  // Errors: kIo  the file cannot be written. Reported once. The timeline has ended, the file stays
  //              valid up to its last event, and every further call does nothing
  Status FlushIfDue(int64_t steady_ns);
  // Writes all waiting events.
  // Errors: as FlushIfDue
  Status Flush();
  // Writes all waiting events and the end of the file. Every further call does nothing.
  // Errors: as FlushIfDue
  Status Close();

  const std::string& path() const { return writer_.path(); }  // of the file, with the rank

  // Tensors of more names than this get no row.
  static constexpr size_t kRowsMax = 1 << 14;

 private:
  struct NameHash {  // accepts strings and views
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  struct TimelineRow {
    uint32_t number = 0;
    bool is_named = false;  // its kRow event was added
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
  std::vector<TimelineEvent> events_;   // [event_count_max_], and more to end open phases
  std::vector<TimelineEvent> writing_;  // the same; being written to the file
  bool is_writing_ = false;             // a thread uses writing_ and writer_ without the lock
  bool is_over_ = false;                // closed, or failed
  bool has_waits_ = false;
  uint64_t lost_count_ = 0;  // events dropped because the memory was full during a write
  int64_t last_write_ns_;
  std::optional<Error> failure_;  // not reported yet
  std::unordered_map<std::string, TimelineRow, NameHash, std::equal_to<>> rows_;
  TimelineWriter writer_;
};

}  // namespace lmdbio::trace
#endif  // LMDBIO_TRACE_TIMELINE_H_
