#include "lmdbio/trace/timeline_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/output/file_limit.h"
#include "lmdbio/trace/event_time.h"

namespace lmdbio::trace {
namespace {

// Thread numbers in the file. Tensors follow.
constexpr uint32_t kHelperRow = 0;
constexpr uint32_t kWaitRow = 1;
constexpr uint32_t kFirstTensorRow = 2;

// Bytes of a name that are written to the file.
constexpr size_t kNameBytesMax = 1024;
// The text is written when it has at least this many bytes.
constexpr size_t kTextBytes = 128 << 10;
// The largest event text, with every byte of its name escaped.
constexpr size_t kEventBytesMax = 8 << 10;

// Time of day minus steady clock. Takes the fastest of several readings, because a reading may be
// interrupted.
int64_t DayMinusSteady() {
  int64_t best_took = INT64_MAX, best = 0;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = SteadyNow();
    const int64_t day = DayNow();
    const int64_t took = SteadyNow() - before;
    if (took >= best_took) continue;
    best_took = took;
    // The day clock is read between the two readings of the steady clock, so it belongs to their
    // middle.
    best = day - (before + took / 2);
  }
  return best;
}

// Length of the UTF-8 character at the front of `text`, in bytes; 0 if it is not valid UTF-8.
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
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // beyond U+10FFFF
  return size;
}

// The content of a JSON string, without the quotes. Tensor names may hold any bytes; each byte that
// is not UTF-8 becomes U+FFFD.
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

// Distinguishes hosts of the same name; "" if the kernel has no boot id.
std::string BootId() {
  const UniqueFd file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  const ssize_t size = file ? ::read(file.get(), text.data(), text.size()) : 0;
  std::string id(text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  id.erase(std::min(id.find('\n'), id.size()));
  return id;
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

TimelineWriter::TimelineWriter(std::string path, UniqueFd file, int rank, int64_t zero_ns)
    : path_(std::move(path)),
      file_(std::move(file)),
      rank_(rank),
      zero_ns_(zero_ns),
      to_begin_(fmt::format(R"({{"name":"negotiate","ph":"B","pid":{},"tid":)", rank)),
      to_end_(fmt::format(R"({{"ph":"E","pid":{},"tid":)", rank)),
      after_name_(fmt::format(R"(","ph":"X","pid":{},"tid":)", rank)) {
  text_.reserve(kTextBytes + kEventBytesMax);
}

// The file is a JSON array of events. Viewers accept one that is cut off, so a killed rank leaves a
// readable file. `lmdbio_clock` is our own event: it maps the steady clock to the time of day, and
// the boot id shows which ranks share a clock.
Status TimelineWriter::WriteHead(int size, std::string_view host) {
  const std::string name = Escaped(host);
  fmt::format_to(std::back_inserter(text_),
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
                 rank_, name, size, Escaped(BootId()), zero_ns_, DayMinusSteady(), kHelperRow,
                 kWaitRow);
  return WriteText();
}

Status TimelineWriter::WriteEvents(std::span<const TimelineEvent> events) {
  for (const TimelineEvent& event : events) {
    Append(event);
    if (text_.size() >= kTextBytes) LMDBIO_TRY_VOID(WriteText());
  }
  return WriteText();
}

Status TimelineWriter::WriteEnd(uint64_t lost_count) {
  // The last event has no comma behind it.
  fmt::format_to(std::back_inserter(text_),
                 R"({{"name":"lmdbio_end","ph":"M","pid":{},"tid":0,)"
                 R"("args":{{"lost_events":{}}}}})"
                 "\n]\n",
                 rank_, lost_count);
  return WriteText();
}

// After a failure the file is cut to whole events. So it ends with an event, not in the middle of
// one.
Status TimelineWriter::WriteText() {
  const bool is_allowed = file::IsWithinFileLimit(file_, file_bytes_ + text_.size());
  if (!is_allowed || !WriteFully(file_.get(), text_)) {
    const int error = is_allowed ? errno : EFBIG;
    // Removes a partly written event. If this fails too, trace viewers ignore the partial event.
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(file_bytes_));
    const std::string words = std::error_code(error, std::generic_category()).message();
    return Fail(ErrorCode::kIo, fmt::format("{}: {}", path_, words), error);
  }
  file_bytes_ += text_.size();
  text_.clear();
  return {};
}

void TimelineWriter::AppendNumber(uint64_t number) {
  std::array<char, 24> text;
  text_.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr);
}

// Writes microseconds with three decimals. The trace format counts in microseconds.
void TimelineWriter::AppendMicroseconds(int64_t ns) {
  if (ns < 0) text_ += '-';
  const auto size = static_cast<uint64_t>(ns < 0 ? -ns : ns);
  std::array<char, 24> text;
  char* end = std::to_chars(text.data(), text.data() + text.size(), size / 1000).ptr;
  const auto rest = static_cast<unsigned>(size % 1000);
  *end++ = '.';
  *end++ = static_cast<char>('0' + rest / 100);
  *end++ = static_cast<char>('0' + rest / 10 % 10);
  *end++ = static_cast<char>('0' + rest % 10);
  text_.append(text.data(), end);
}

void TimelineWriter::AppendArguments(std::initializer_list<Argument> arguments) {
  std::string_view before = R"(,"args":{")";
  for (const Argument& argument : arguments) {
    text_ += before;
    text_ += argument.name;
    text_ += R"(":)";
    AppendNumber(argument.value);
    before = R"(,")";
  }
  text_ += "}},\n";
}

// Writes the thread number and the time of the event.
void TimelineWriter::AppendPlace(uint32_t thread, int64_t steady_ns) {
  AppendNumber(thread);
  text_ += R"(,"ts":)";
  AppendMicroseconds(steady_ns - zero_ns_);
}

// Requires: arguments.size() > 0
void TimelineWriter::AppendSpan(std::string_view name, uint32_t thread, const TimelineEvent& event,
                                std::initializer_list<Argument> arguments) {
  text_ += R"({"name":")";
  text_ += name;
  text_ += after_name_;
  AppendPlace(thread, event.begin_ns);
  text_ += R"(,"dur":)";
  AppendMicroseconds(std::max<int64_t>(event.end_ns - event.begin_ns, 0));
  AppendArguments(arguments);
}

void TimelineWriter::Append(const TimelineEvent& event) {
  const bool has_row = event.row != TimelineEvent::kNoRow;
  const uint32_t thread = has_row ? kFirstTensorRow + event.row : kWaitRow;
  switch (event.kind) {
    case TimelineEvent::EventKind::kRow:
      fmt::format_to(std::back_inserter(text_),
                     R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},)"
                     R"("args":{{"name":"{}"}}}},)"
                     "\n",
                     rank_, thread, Escaped(event.name));
      return;
    case TimelineEvent::EventKind::kNegotiate:
      // The frequent events append constant texts and numbers only. The rare ones below use fmt.
      text_ += to_begin_;
      AppendPlace(thread, event.begin_ns);
      return AppendArguments({{"number", event.number}, {"bytes", event.bytes}});
    case TimelineEvent::EventKind::kAgreed:
      text_ += to_end_;
      AppendPlace(thread, event.begin_ns);
      text_ += "},\n";
      return;
    case TimelineEvent::EventKind::kOperation:
      return AppendSpan(event.name, thread, event, {{"bucket", event.number}});
    case TimelineEvent::EventKind::kRound:
      return AppendSpan("round", kHelperRow, event, {{"number", event.number}});
    case TimelineEvent::EventKind::kTransfer:
      return AppendSpan("transfer", kHelperRow, event, {{"bytes", event.bytes}});
    case TimelineEvent::EventKind::kCopyOut:
      return AppendSpan("copy out", kHelperRow, event, {{"bytes", event.bytes}});
    case TimelineEvent::EventKind::kBucket:
      return AppendSpan(
          "bucket", kHelperRow, event,
          {{"number", event.number}, {"bytes", event.bytes}, {"tensors", event.tensor_count}});
    case TimelineEvent::EventKind::kWait:
      return AppendSpan("wait", kWaitRow, event, {{"row", thread}});
    case TimelineEvent::EventKind::kMark:
      fmt::format_to(std::back_inserter(text_), R"({{"name":"{}","ph":"i","s":"t","pid":{},"tid":)",
                     Escaped(event.name), rank_);
      AppendPlace(kHelperRow, event.begin_ns);
      text_ += "},\n";
      return;
  }
}

}  // namespace lmdbio::trace
