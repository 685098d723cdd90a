#include "lmdbio/trace/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::trace {
namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;

// Rows of the file. Tensors follow.
constexpr uint32_t kHelperRow = 0;
constexpr uint32_t kWaitRow = 1;
constexpr uint32_t kFirstTensorRow = 2;

// Of a name, what goes into the file; with every byte escaped, and all around it, it is less than
// what has to be free before anything is appended.
constexpr size_t kNameBytesMax = 1024;
constexpr size_t kEventBytesMax = 8192;
constexpr size_t kBufferBytesMin = 64 << 10;

// FlushIfDue writes from so many bytes on, or what has waited for so long.
constexpr size_t kMuchBytes = 64 << 10;
constexpr int64_t kLongNs = 1'000'000'000;

int64_t SteadyNow() {
  return duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t DayNow() {
  return duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// What is to be added to the steady clock for the time of day. Of several readings, each of which
// may be interrupted, the one that took least.
int64_t DayMinusSteady() {
  int64_t best_took = INT64_MAX, best = 0;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = SteadyNow();
    const int64_t day = DayNow();
    const int64_t took = SteadyNow() - before;
    if (took >= best_took) continue;
    best_took = took;
    best = day - (before + took / 2);
  }
  return best;
}

// How many bytes the UTF-8 character at the front of `text` has; 0 if there is none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t size = lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (size == 0 || lead > 0xF4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if (byte(i) >> 6 != 2) return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (lead == 0xED && byte(1) > 0x9F) return 0;  // a surrogate
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // beyond the last
  return size;
}

// What stands between the quotes of a JSON string.
std::string Escaped(std::string_view text) {
  text = text.substr(0, kNameBytesMax);
  std::string escaped;
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (size == 0) {
      escaped += "\\ufffd";
    } else if (first < 0x20 || first == 0x7F) {
      escaped += fmt::format("\\u{:04x}", first);
    } else {
      if (first == '"' || first == '\\') escaped += '\\';
      escaped += text.substr(0, size);
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return escaped;
}

std::string HostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// Tells machines apart that have the same name; "" where there is none.
std::string BootId() {
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : 0;
  std::string id(text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  id.erase(std::min(id.find('\n'), id.size()));
  return id;
}

Error WriteError(const std::string& path) {
  return {ErrorCode::kIo,
          fmt::format("{}: {}", path, std::error_code(errno, std::generic_category()).message())};
}

bool WriteFully(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(file, text.data(), text.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    text.remove_prefix(static_cast<size_t>(size));
  }
  return true;
}

}  // namespace

std::string_view TensorPhaseName(TensorPhase phase) {
  static constexpr std::array<std::string_view, 5> kNames = {"negotiate", "pack", "reduce",
                                                             "unpack", "finish"};
  return kNames.at(static_cast<size_t>(phase));
}

Result<std::unique_ptr<Timeline>> Timeline::Open(const TimelineOptions& options) {
  if (options.buffer_bytes < kBufferBytesMin) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("buffer_bytes: {} is below {}", options.buffer_bytes, kBufferBytesMin));
  }
  std::string path = fmt::format("{}.{}", options.path, options.rank);
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) return Fail(WriteError(path));
  std::unique_ptr<Timeline> timeline(new Timeline(options, std::move(path), std::move(file)));
  // A rank that dies early leaves a file that says whose it is.
  LMDBIO_TRY_VOID(timeline->Flush());
  return timeline;
}

Timeline::Timeline(const TimelineOptions& options, std::string path, UniqueFd file)
    : path_(std::move(path)),
      rank_(options.rank),
      buffer_bytes_(options.buffer_bytes),
      file_(std::move(file)),
      zero_ns_(SteadyNow()) {
  buffer_.reserve(buffer_bytes_);
  writing_.reserve(buffer_bytes_);
  last_write_ns_ = zero_ns_;
  WriteHead(options, options.host.empty() ? HostName() : options.host);
}

Timeline::~Timeline() { [[maybe_unused]] const Status status = Close(); }

void Timeline::WriteHead(const TimelineOptions& options, const std::string& host) {
  const std::string name = Escaped(host);
  fmt::format_to(std::back_inserter(buffer_),
                 "[\n"
                 R"({{"name":"process_name","ph":"M","pid":{0},"tid":0,)"
                 R"("args":{{"name":"rank {0} on {1}"}}}},)"
                 "\n"
                 R"({{"name":"process_sort_index","ph":"M","pid":{0},"tid":0,)"
                 R"("args":{{"sort_index":{0}}}}},)"
                 "\n"
                 R"({{"name":"lmdbio_clock","ph":"M","pid":{0},"tid":0,"args":{{"version":1,)"
                 R"("rank":{0},"size":{2},"host":"{1}","boot_id":"{3}","steady_ns":{4},)"
                 R"("day_minus_steady_ns":{5}}}}},)"
                 "\n"
                 R"({{"name":"thread_name","ph":"M","pid":{0},"tid":{6},)"
                 R"("args":{{"name":"helper thread"}}}},)"
                 "\n"
                 R"({{"name":"thread_name","ph":"M","pid":{0},"tid":{7},)"
                 R"("args":{{"name":"program waits"}}}},)"
                 "\n",
                 rank_, name, options.size, Escaped(BootId()), zero_ns_, DayMinusSteady(),
                 kHelperRow, kWaitRow);
}

// Microseconds since the file's time 0, with nanoseconds behind the point. Written by hand: of what
// an event costs, numbers are most.
void Timeline::AppendTime(int64_t steady_ns) {
  const int64_t ns = steady_ns - zero_ns_;
  if (ns < 0) buffer_ += '-';
  const auto size = static_cast<uint64_t>(ns < 0 ? -ns : ns);
  std::array<char, 24> text;
  char* end = std::to_chars(text.data(), text.data() + text.size(), size / 1000).ptr;
  const auto rest = static_cast<unsigned>(size % 1000);
  *end++ = '.';
  *end++ = static_cast<char>('0' + rest / 100);
  *end++ = static_cast<char>('0' + rest / 10 % 10);
  *end++ = static_cast<char>('0' + rest % 10);
  buffer_.append(text.data(), end);
}

// Whether one more event may be appended. Gives the lock up while a full buffer is written.
bool Timeline::HasRoom(Lock& lock) {
  if (is_over_) return false;
  if (buffer_.size() + kEventBytesMax > buffer_bytes_ && !is_writing_) WriteOut(lock);
  if (is_over_) return false;
  if (buffer_.size() + kEventBytesMax <= buffer_bytes_) return true;
  // The file is slower than the job, which is not to wait for it.
  ++lost_count_;
  return false;
}

// Requires: !is_writing_
void Timeline::WriteOut(Lock& lock) {
  std::swap(buffer_, writing_);
  is_writing_ = true;
  lock.unlock();
  const bool is_good = WriteFully(file_.get(), writing_);
  std::optional<Error> error;
  if (!is_good) error = WriteError(path_);
  const int64_t now = SteadyNow();
  lock.lock();
  if (is_good) {
    file_bytes_ += writing_.size();
  } else {
    is_over_ = true;
    failure_ = std::move(error);
    // Half an event helps nobody; if this fails too, readers forgive it.
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(file_bytes_));
  }
  writing_.clear();
  last_write_ns_ = now;
  is_writing_ = false;
  written_.notify_all();
}

// The row of a tensor, made when its name is new; null if there are too many. Requires: HasRoom
Timeline::Row* Timeline::RowOf(std::string_view tensor) {
  const auto known = rows_.find(tensor);
  if (known != rows_.end()) return &known->second;
  if (rows_.size() == kRowsMax) return nullptr;
  Row& row = rows_[std::string(tensor)];
  row.thread = kFirstTensorRow + static_cast<uint32_t>(rows_.size() - 1);
  row.to_end = fmt::format(R"({{"ph":"E","pid":{},"tid":{},"ts":)", rank_, row.thread);
  row.after_name = fmt::format(R"(","ph":"B","pid":{},"tid":{},"ts":)", rank_, row.thread);
  fmt::format_to(std::back_inserter(buffer_),
                 R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":"{}"}}}},)"
                 "\n",
                 rank_, row.thread, Escaped(tensor));
  return &row;
}

void Timeline::AppendEnd(const Row& row, int64_t at_ns) {
  buffer_ += row.to_end;
  AppendTime(at_ns);
  buffer_ += "},\n";
}

// Up to its time: what follows is the caller's.
void Timeline::AppendBegin(const Row& row, TensorPhase phase, int64_t at_ns) {
  buffer_ += R"({"name":")";
  buffer_ += TensorPhaseName(phase);
  buffer_ += row.after_name;
  AppendTime(at_ns);
}

void Timeline::AppendSpan(std::string_view name, uint32_t thread, int64_t begin_ns, int64_t end_ns,
                          std::string_view arguments) {
  const auto out = std::back_inserter(buffer_);
  fmt::format_to(out, R"({{"name":"{}","ph":"X","pid":{},"tid":{},"ts":)", name, rank_, thread);
  AppendTime(begin_ns);
  const auto took = static_cast<uint64_t>(std::max<int64_t>(end_ns - begin_ns, 0));
  fmt::format_to(out,
                 R"(,"dur":{}.{:03},"args":{{{}}}}},)"
                 "\n",
                 took / 1000, took % 1000, arguments);
}

void Timeline::Begin(std::string_view tensor, uint64_t bytes, int64_t steady_ns) {
  Lock lock(mutex_);
  if (!HasRoom(lock)) {
    const auto known = rows_.find(tensor);
    if (known != rows_.end()) ++known->second.begin_count;
    return;
  }
  Row* const row = RowOf(tensor);
  if (row == nullptr) return;
  if (row->phase) AppendEnd(*row, steady_ns);  // its end was lost
  row->phase = TensorPhase::kNegotiate;
  ++row->begin_count;
  AppendBegin(*row, TensorPhase::kNegotiate, steady_ns);
  fmt::format_to(std::back_inserter(buffer_),
                 R"(,"args":{{"number":{},"bytes":{}}}}},)"
                 "\n",
                 row->begin_count, bytes);
}

void Timeline::Enter(std::string_view tensor, TensorPhase phase, int64_t steady_ns) {
  Lock lock(mutex_);
  if (!HasRoom(lock)) return;
  const auto found = rows_.find(tensor);
  if (found == rows_.end() || !found->second.phase) return;
  Row& row = found->second;
  AppendEnd(row, steady_ns);
  row.phase = phase;
  AppendBegin(row, phase, steady_ns);
  buffer_ += "},\n";
}

void Timeline::End(std::string_view tensor, int64_t steady_ns) {
  Lock lock(mutex_);
  if (!HasRoom(lock)) return;
  const auto found = rows_.find(tensor);
  if (found == rows_.end() || !found->second.phase) return;
  found->second.phase.reset();
  AppendEnd(found->second, steady_ns);
}

void Timeline::Round(uint64_t number, int64_t begin_ns, int64_t end_ns) {
  Lock lock(mutex_);
  if (!HasRoom(lock)) return;
  AppendSpan("round", kHelperRow, begin_ns, end_ns, fmt::format(R"("number":{})", number));
}

void Timeline::Bucket(const BucketSpan& bucket) {
  Lock lock(mutex_);
  if (!HasRoom(lock)) return;
  AppendSpan("bucket", kHelperRow, bucket.begin_ns, bucket.end_ns,
             fmt::format(R"("collective":{},"bytes":{},"tensors":{})", bucket.collective,
                         bucket.bytes, bucket.tensor_count));
}

void Timeline::Waited(std::string_view tensor, int64_t begin_ns, int64_t end_ns) {
  Lock lock(mutex_);
  if (!HasRoom(lock)) return;
  const auto found = rows_.find(tensor);
  const uint32_t row = found == rows_.end() ? kWaitRow : found->second.thread;
  AppendSpan("wait", kWaitRow, begin_ns, end_ns, fmt::format(R"("row":{})", row));
}

void Timeline::Mark(std::string_view what, int64_t steady_ns) {
  Lock lock(mutex_);
  if (!HasRoom(lock)) return;
  fmt::format_to(std::back_inserter(buffer_),
                 R"({{"name":"{}","ph":"i","s":"t","pid":{},"tid":{},"ts":)", Escaped(what), rank_,
                 kHelperRow);
  AppendTime(steady_ns);
  buffer_ += "},\n";
}

Status Timeline::FlushLocked(Lock& lock) {
  written_.wait(lock, [this] { return !is_writing_; });
  if (!is_over_ && !buffer_.empty()) WriteOut(lock);
  if (!failure_) return {};
  Error failure = *std::move(failure_);
  failure_.reset();
  return Fail(std::move(failure));
}

Status Timeline::FlushIfDue(int64_t steady_ns) {
  Lock lock(mutex_);
  if (is_writing_) return {};
  const bool is_due = failure_ || buffer_.size() >= kMuchBytes ||
                      (!buffer_.empty() && steady_ns - last_write_ns_ >= kLongNs);
  return is_due ? FlushLocked(lock) : Status();
}

Status Timeline::Flush() {
  Lock lock(mutex_);
  return FlushLocked(lock);
}

Status Timeline::Close() {
  Lock lock(mutex_);
  written_.wait(lock, [this] { return !is_writing_; });
  if (!is_over_) {
    // No comma behind the last event.
    fmt::format_to(std::back_inserter(buffer_),
                   R"({{"name":"lmdbio_end","ph":"M","pid":{},"tid":0,)"
                   R"("args":{{"lost_events":{}}}}})"
                   "\n]\n",
                   rank_, lost_count_);
  }
  Status status = FlushLocked(lock);
  is_over_ = true;
  return status;
}

}  // namespace lmdbio::trace
