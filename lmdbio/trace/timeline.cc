#include "lmdbio/trace/timeline.h"

#include <unistd.h>

#include <array>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/output/growing_file.h"
#include "lmdbio/trace/event_time.h"

namespace lmdbio::trace {
namespace {

using EventKind = TimelineEvent::EventKind;

constexpr size_t kBufferBytesMin = 64 << 10;

// FlushIfDue writes this many events or more, or any events this long after the last write.
constexpr size_t kManyEvents = 1024;
constexpr int64_t kLongNs = 1'000'000'000;

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

}  // namespace

Result<std::unique_ptr<Timeline>> Timeline::Open(const TimelineOptions& options) {
  if (options.buffer_bytes < kBufferBytesMin) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("buffer_bytes: {} is below {}", options.buffer_bytes, kBufferBytesMin));
  }
  std::string path = fmt::format("{}.{}", options.path, options.rank);
  Result<UniqueFd> file = file::OpenGrowingFile(path);
  if (!file) {
    const int error = file.error().error_number();
    if (error == 0) return Fail(ErrorCode::kIo, file.error().message());
    const std::string words = std::error_code(error, std::generic_category()).message();
    return Fail(ErrorCode::kIo, fmt::format("{}: {}", path, words), error);
  }
  std::unique_ptr<Timeline> timeline(new Timeline(options, std::move(path), *std::move(file)));
  // The head is written now, so that the file of a rank that dies early names the rank.
  LMDBIO_TRY_VOID(
      timeline->writer_.WriteHead(options.size, options.host.empty() ? HostName() : options.host));
  return timeline;
}

// Both event lists are allocated here, so that an event needs no memory of its own.
Timeline::Timeline(const TimelineOptions& options, std::string path, UniqueFd file)
    : event_count_max_(options.buffer_bytes / sizeof(TimelineEvent)),
      last_write_ns_(SteadyNow()),
      writer_(std::move(path), std::move(file), options.rank, last_write_ns_) {
  events_.reserve(event_count_max_);
  writing_.reserve(event_count_max_);
}

Timeline::~Timeline() { [[maybe_unused]] const Status status = Close(); }

// Whether one more event may be appended. If the memory is full, writes it out, and releases the
// lock meanwhile.
bool Timeline::HasRoom(Lock& lock) {
  if (is_over_) return false;
  if (events_.size() >= event_count_max_ && !is_writing_) WriteOut(lock);
  if (is_over_) return false;
  if (events_.size() < event_count_max_) return true;
  // Another thread is writing. The event is dropped, because the job must not wait for the file.
  ++lost_count_;
  return false;
}

void Timeline::Add(const TimelineEvent& event) {
  Lock lock(mutex_);
  if (HasRoom(lock)) events_.push_back(event);
}

// Swaps the two event lists and writes one of them without the lock, so that other threads append
// to the other list meanwhile.
// Requires: !is_writing_
void Timeline::WriteOut(Lock& lock) {
  std::swap(events_, writing_);
  is_writing_ = true;
  lock.unlock();
  Status written = writer_.WriteEvents(writing_);
  const int64_t now = SteadyNow();
  lock.lock();
  if (!written) {
    is_over_ = true;
    failure_ = std::move(written).error();
  }
  writing_.clear();
  last_write_ns_ = now;
  is_writing_ = false;
  written_.notify_all();
}

TimelineTensor Timeline::Begin(std::string_view name, uint64_t bytes, int64_t steady_ns) {
  Lock lock(mutex_);
  auto known = rows_.find(name);
  if (known == rows_.end()) {
    // A viewer cannot show so many rows, and names that never repeat would fill the memory.
    if (rows_.size() == kRowsMax) return {};
    const auto number = static_cast<uint32_t>(rows_.size());
    known = rows_.try_emplace(std::string(name), TimelineRow{.number = number}).first;
  }
  auto& [key, row] = *known;  // references to map elements stay valid
  // Counted even if the event is dropped: lmdbio-timeline compares the numbers of all ranks.
  ++row.begin_count;
  if (!HasRoom(lock)) return {};
  // The name is written before the first event of its row.
  if (!std::exchange(row.is_named, true)) {
    events_.push_back({.kind = EventKind::kRow, .row = row.number, .name = key});
  }
  events_.push_back({.kind = EventKind::kNegotiate,
                     .row = row.number,
                     .begin_ns = steady_ns,
                     .number = row.begin_count,
                     .bytes = bytes});
  return {.row = row.number, .is_negotiating = true};
}

// Ends the open phase of the tensor. The event is added even if the memory is full, because every
// phase that begins in the file must end in it. The number of such events is bounded by the number
// of open phases.
void Timeline::EndPhase(TimelineTensor& tensor, std::string_view operation, int64_t at_ns) {
  if (tensor.is_negotiating) {
    events_.push_back({.kind = EventKind::kAgreed, .row = tensor.row, .begin_ns = at_ns});
  } else if (tensor.is_agreed) {
    events_.push_back({.kind = EventKind::kOperation,
                       .row = tensor.row,
                       .name = operation,
                       .begin_ns = tensor.agreed_ns,
                       .end_ns = at_ns,
                       .number = tensor.bucket});
  }
  tensor.is_negotiating = false;
  tensor.is_agreed = false;
}

void Timeline::Agree(TimelineTensor& tensor, uint64_t bucket, int64_t steady_ns) {
  if (tensor.row == TimelineEvent::kNoRow) return;
  Lock lock(mutex_);
  if (is_over_) return;
  EndPhase(tensor, "declined", steady_ns);  // a second Agree means that the bucket was declined
  tensor.is_agreed = true;
  tensor.agreed_ns = steady_ns;
  tensor.bucket = bucket;
}

void Timeline::End(TimelineTensor& tensor, std::string_view operation, int64_t steady_ns) {
  if (tensor.row == TimelineEvent::kNoRow) return;
  Lock lock(mutex_);
  if (!is_over_) EndPhase(tensor, operation, steady_ns);
}

void Timeline::Round(uint64_t number, int64_t begin_ns, int64_t end_ns) {
  Add({.kind = EventKind::kRound, .begin_ns = begin_ns, .end_ns = end_ns, .number = number});
}

void Timeline::Transfer(uint64_t bytes, int64_t begin_ns, int64_t end_ns) {
  Add({.kind = EventKind::kTransfer, .begin_ns = begin_ns, .end_ns = end_ns, .bytes = bytes});
}

void Timeline::CopyOut(uint64_t bytes, int64_t begin_ns, int64_t end_ns) {
  Add({.kind = EventKind::kCopyOut, .begin_ns = begin_ns, .end_ns = end_ns, .bytes = bytes});
}

void Timeline::Bucket(const BucketSpan& bucket) {
  Add({.kind = EventKind::kBucket,
       .begin_ns = bucket.begin_ns,
       .end_ns = bucket.end_ns,
       .number = bucket.number,
       .bytes = bucket.bytes,
       .tensor_count = bucket.tensor_count});
}

void Timeline::Waited(std::string_view tensor, int64_t begin_ns, int64_t end_ns) {
  Lock lock(mutex_);
  // The first wait is written whatever its length. So lmdbio-timeline knows that waits are
  // recorded.
  if (has_waits_ && end_ns - begin_ns < kLookNs) return;
  if (!HasRoom(lock)) return;
  has_waits_ = true;
  // A tensor without a row is waited for as well; the event then names no row.
  const auto found = rows_.find(tensor);
  events_.push_back({.kind = EventKind::kWait,
                     .row = found == rows_.end() ? TimelineEvent::kNoRow : found->second.number,
                     .begin_ns = begin_ns,
                     .end_ns = end_ns});
}

void Timeline::Mark(std::string_view what, int64_t steady_ns) {
  Add({.kind = EventKind::kMark, .name = what, .begin_ns = steady_ns});
}

// Waits for a thread that is writing, because batches must reach the file in their order.
Status Timeline::FlushLocked(Lock& lock) {
  written_.wait(lock, [this] { return !is_writing_; });
  if (!is_over_ && !events_.empty()) WriteOut(lock);
  return TellFailure();
}

Status Timeline::TellFailure() {
  if (!failure_) return {};
  // The first caller gets the error. Later calls succeed and do nothing.
  Error failure = *std::move(failure_);
  failure_.reset();
  return Fail(std::move(failure));
}

Status Timeline::FlushIfDue(int64_t steady_ns) {
  Lock lock(mutex_);
  // Another thread writes already. The helper thread must not wait for it.
  if (is_writing_) return {};
  const bool is_due = failure_ || events_.size() >= kManyEvents ||
                      (!events_.empty() && steady_ns - last_write_ns_ >= kLongNs);
  return is_due ? FlushLocked(lock) : Status();
}

Status Timeline::Flush() {
  Lock lock(mutex_);
  return FlushLocked(lock);
}

// The end is written once, after all events, and has the number of lost events.
Status Timeline::Close() {
  Lock lock(mutex_);
  LMDBIO_TRY_VOID(FlushLocked(lock));
  // A timeline that has failed or is closed gets no end.
  if (std::exchange(is_over_, true)) return {};
  return writer_.WriteEnd(lost_count_);
}

}  // namespace lmdbio::trace
