// lmdbio/trace/timeline_writer.h - converts the events of a timeline to the text of its file.
//
// The text is built without a formatting library, for speed: an event has 40 to 130 bytes, and
// there are three for each tensor and iteration.
#ifndef LMDBIO_TRACE_TIMELINE_WRITER_H_
#define LMDBIO_TRACE_TIMELINE_WRITER_H_

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::trace {

// Times are nanoseconds of the steady clock. `row` is the row number of a tensor, from 0 on.
struct TimelineEvent {
  enum class EventKind : uint8_t {
    kRow,        // declares a row: name
    kNegotiate,  // `negotiate` begins in a row: number, bytes
    kAgreed,     // `negotiate` ends
    kOperation,  // a span of a row: name, number of the bucket
    kRound,      // spans of the helper thread: number
    kTransfer,   //   bytes
    kCopyOut,    //   bytes
    kBucket,     //   number, bytes, tensor_count
    kWait,       // a span of the program: row, or kNoRow
    kMark,       // a point in time: name
  };
  static constexpr uint32_t kNoRow = UINT32_MAX;

  EventKind kind = EventKind::kMark;
  uint32_t row = kNoRow;
  std::string_view name = {};  // outlives the timeline
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;
  uint64_t tensor_count = 0;
};

// Threads: one at a time.
class TimelineWriter {
 public:
  // zero_ns  of the steady clock: the file's time 0
  TimelineWriter(std::string path, UniqueFd file, int rank, int64_t zero_ns);

  // Each appends to the file, in large writes.
  // Errors: kIo  the file cannot be written; names it and errno. The file ends with a whole event
  Status WriteHead(int size, std::string_view host);
  Status WriteEvents(std::span<const TimelineEvent> events);
  Status WriteEnd(uint64_t lost_count);

  const std::string& path() const { return path_; }

 private:
  struct Argument {
    std::string_view name;
    uint64_t value = 0;
  };

  void Append(const TimelineEvent& event);
  void AppendSpan(std::string_view name, uint32_t thread, const TimelineEvent& event,
                  std::initializer_list<Argument> arguments);
  void AppendPlace(uint32_t thread, int64_t steady_ns);
  void AppendArguments(std::initializer_list<Argument> arguments);
  void AppendNumber(uint64_t number);
  void AppendMicroseconds(int64_t ns);
  Status WriteText();

  const std::string path_;
  UniqueFd file_;
  const int rank_;
  const int64_t zero_ns_;
  // Constant text up to the thread number: of an event that begins `negotiate`, of one that ends
  // it, and after the name of a span.
  const std::string to_begin_, to_end_, after_name_;
  std::string text_;         // whole events that are not yet written
  uint64_t file_bytes_ = 0;  // of whole events
};

}  // namespace lmdbio::trace
#endif  // LMDBIO_TRACE_TIMELINE_WRITER_H_
