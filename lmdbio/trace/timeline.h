// lmdbio/trace/timeline.h - what this rank did when, as a trace that Chrome and Perfetto show.
//
// One file for each rank, PATH.rank, an event on each line. A row for each tensor, with its phases
// one after the other; a row for the helper thread, with rounds and buckets; a row for the waiting
// of the program. `lmdbio-timeline` merges the files of all ranks, and reports.
//
//   submitted -negotiate-> agreed -pack-> packed -reduce-> reduced -unpack-> unpacked -finish->
//   done
//
// Events are put into memory. It goes to the file in large writes: when it is full, by the thread
// that finds it so, and when the helper thread has nothing else to do. There is no thread for that.
// A file whose process was killed lacks its end, which readers of such traces forgive.
//
// Source: docs/sync.md "Seeing what happens".
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

namespace lmdbio::trace {

struct TimelineOptions {
  std::string path = {};  // "trace" makes "trace.3" on rank 3; what was there is overwritten
  int rank = 0;
  int size = 1;
  std::string host = {};          // "": as the kernel calls it
  size_t buffer_bytes = 1 << 20;  // at least 64 KiB; twice that is allocated, at once
};

// In the order in which a tensor goes through them. One may be left out.
enum class TensorPhase : uint8_t {
  kNegotiate,  // until all ranks have submitted it
  kPack,       // until it lies in the buffer of its bucket; waiting for its turn included
  kReduce,     // until the collective is done
  kUnpack,     // until it lies where the program wants it
  kFinish,     // until the program was told
};

// "negotiate", "pack", "reduce", "unpack", "finish"
std::string_view TensorPhaseName(TensorPhase phase);

// Times are those of std::chrono::steady_clock, in nanoseconds since its epoch, and do not go back
// within a row.
// Threads: any, for every method but the destructor.
// Cost: a lock and some hundred bytes of text for each event; a write to the file for each
// buffer_bytes of them
class Timeline {
 public:
  // Errors: kIo               the file cannot be written; names it and errno
  //         kInvalidArgument  buffer_bytes
  static Result<std::unique_ptr<Timeline>> Open(const TimelineOptions& options);

  // Closes, and forgets how that went.
  ~Timeline();
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // A tensor was submitted: its first phase, kNegotiate, begins. How often that has happened to
  // this name goes into the file, so that the tool finds the rank that was last to submit.
  void Begin(std::string_view tensor, uint64_t bytes, int64_t steady_ns);
  // Its phase ends and another begins. Ignored for a tensor that has none.
  void Enter(std::string_view tensor, TensorPhase phase, int64_t steady_ns);
  // The tensor is done, or has failed.
  void End(std::string_view tensor, int64_t steady_ns);

  // The helper thread was in a round of control exchanges.
  void Round(uint64_t number, int64_t begin_ns, int64_t end_ns);

  // One bucket, from its packing until it is unpacked.
  struct BucketSpan {
    uint64_t collective = 0;  // number of the call
    uint64_t bytes = 0;
    uint64_t tensor_count = 0;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  void Bucket(const BucketSpan& bucket);

  // A thread of the program waited for a tensor: what is exposed of the communication.
  void Waited(std::string_view tensor, int64_t begin_ns, int64_t end_ns);

  // Something happened in the helper thread: "cycle", "plan adopted", ...
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

  const std::string& path() const { return path_; }  // of the file, with the rank

  // Tensors of more names than this get no row.
  static constexpr size_t kRowsMax = 1 << 14;

 private:
  struct Row {
    uint32_t thread = 0;     // its number in the file
    std::string to_end;      // what an event begins with that ends a phase, up to its time
    std::string after_name;  // and one that begins a phase, from its name to its time
    uint64_t begin_count = 0;
    std::optional<TensorPhase> phase;  // that is open
  };
  struct NameHash {  // of names in any form
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  using Lock = std::unique_lock<std::mutex>;

  Timeline(const TimelineOptions& options, std::string path, UniqueFd file);
  void WriteHead(const TimelineOptions& options, const std::string& host);
  Row* RowOf(std::string_view tensor);
  bool HasRoom(Lock& lock);
  void AppendEnd(const Row& row, int64_t at_ns);
  void AppendBegin(const Row& row, TensorPhase phase, int64_t at_ns);
  void AppendSpan(std::string_view name, uint32_t thread, int64_t begin_ns, int64_t end_ns,
                  std::string_view arguments);
  void AppendTime(int64_t steady_ns);
  void WriteOut(Lock& lock);
  Status FlushLocked(Lock& lock);

  const std::string path_;
  const int rank_;
  const size_t buffer_bytes_;
  UniqueFd file_;
  int64_t zero_ns_;  // the steady clock at the file's time 0

  std::mutex mutex_;  // for all below
  std::condition_variable written_;
  std::string buffer_, writing_;  // [buffer_bytes_]; `writing_` is on its way to the file
  bool is_writing_ = false;
  bool is_over_ = false;     // closed, or failed
  uint64_t file_bytes_ = 0;  // of whole events
  uint64_t lost_count_ = 0;  // events for which there was no room while the file was written
  int64_t last_write_ns_ = 0;
  std::optional<Error> failure_;  // until somebody was told
  std::unordered_map<std::string, Row, NameHash, std::equal_to<>> rows_;
};

}  // namespace lmdbio::trace
#endif  // LMDBIO_TRACE_TIMELINE_H_
