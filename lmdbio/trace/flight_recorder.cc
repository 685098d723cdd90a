#include "lmdbio/trace/flight_recorder.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/trace/event_time.h"

namespace lmdbio::trace {
namespace {

using std::chrono::duration_cast;
using std::chrono::nanoseconds;

// "14:03:07.123456"
std::string TimeOfDay(int64_t since_1970_ns) {
  constexpr int64_t kSecond = 1'000'000'000;
  constexpr int64_t kDay = 86'400;
  const int64_t second = (since_1970_ns / kSecond % kDay + kDay) % kDay;
  const int64_t micro = since_1970_ns % kSecond / 1000;
  return fmt::format("{:02}:{:02}:{:02}.{:06}", second / 3600, second / 60 % 60, second % 60,
                     micro < 0 ? 0 : micro);
}

}  // namespace

struct FlightRecorder::Event {
  uint64_t order = 0;
  int64_t time_ns = 0;
  FlightKind kind = FlightKind::kSubmitted;
  FlightDetail detail;
  std::string name;
};

std::string_view FlightKindName(FlightKind kind) {
  switch (kind) {
    case FlightKind::kSubmitted:
      return "submitted";
    case FlightKind::kAgreed:
      return "agreed";
    case FlightKind::kBegun:
      return "begun";
    case FlightKind::kDone:
      return "done";
    case FlightKind::kFailed:
      return "failed";
    case FlightKind::kPlanAdopted:
      return "plan adopted";
    case FlightKind::kPlanEnded:
      return "plan ended";
    case FlightKind::kStalled:
      return "stalled";
    case FlightKind::kStaged:
      return "staged";
  }
  return "unknown";
}

FlightRecorder::FlightRecorder(uint32_t capacity)
    : capacity_(capacity),
      slots_(std::make_unique<EventSlot[]>(capacity)),
      day_minus_steady_ns_(DayNow() - SteadyNow()) {
  LMDBIO_CHECK(capacity > 0);
}

void FlightRecorder::Record(FlightKind kind, std::string_view name, FlightDetail detail) {
  RecordAt(SteadyNow(), kind, name, detail);
}

// A sequence lock for each slot. A writer takes the slot by setting an odd state, and publishes the
// event with the next even state. The stores between the two are releases and pair with the acquire
// loads in Read. So a reader that sees a word of this event also sees the changed state, and
// discards its copy. (A fence would do the same, but the thread sanitizer does not support fences.)
void FlightRecorder::RecordAt(int64_t steady_ns, FlightKind kind, std::string_view name,
                              FlightDetail detail) {
  constexpr auto kRelease = std::memory_order_release;
  // The number is unique, and relaxed order suffices: the state of the slot orders everything else.
  const uint64_t order = next_.fetch_add(1, std::memory_order_relaxed);
  EventSlot& slot = slots_[order % capacity_];
  uint64_t state = slot.state.load(std::memory_order_relaxed);
  // Another thread is writing to the slot, or has written a newer event: this event is lost.
  if (state % 2 != 0 || state > 2 * order) return;
  if (!slot.state.compare_exchange_strong(state, 2 * order + 1, std::memory_order_acquire)) return;
  std::array<uint64_t, kNameWords> words{};
  char* const text = reinterpret_cast<char*>(words.data());
  size_t name_bytes = name.size();
  if (name_bytes <= kNameBytesMax) {
    std::copy(name.begin(), name.end(), text);
  } else {
    constexpr std::string_view kGap = "...";
    constexpr size_t kHead = (kNameBytesMax - kGap.size()) / 2;
    constexpr size_t kTail = kNameBytesMax - kGap.size() - kHead;
    char* end = std::copy_n(name.begin(), kHead, text);
    end = std::copy(kGap.begin(), kGap.end(), end);
    std::copy_n(name.end() - kTail, kTail, end);
    name_bytes = kNameBytesMax;
  }
  slot.time_ns.store(static_cast<uint64_t>(steady_ns), kRelease);
  slot.number.store(detail.number, kRelease);
  slot.bytes.store(detail.bytes, kRelease);
  slot.collective.store(detail.collective, kRelease);
  slot.kind_and_name_bytes.store(static_cast<uint64_t>(kind) << 32 | name_bytes, kRelease);
  // Words behind the name keep bytes of older events; the length hides them.
  const size_t word_count = (name_bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
  for (size_t i = 0; i < word_count; ++i) slot.name[i].store(words[i], kRelease);
  slot.state.store(2 * order + 2, kRelease);
}

// False if there is no event, or if it is being overwritten.
bool FlightRecorder::Read(const EventSlot& slot, Event& event) {
  constexpr auto kAcquire = std::memory_order_acquire;
  const uint64_t state = slot.state.load(kAcquire);
  if (state == 0 || state % 2 != 0) return false;
  event.order = state / 2 - 1;
  event.time_ns = static_cast<int64_t>(slot.time_ns.load(kAcquire));
  event.detail.number = slot.number.load(kAcquire);
  event.detail.bytes = slot.bytes.load(kAcquire);
  event.detail.collective = slot.collective.load(kAcquire);
  const uint64_t kind_and_name_bytes = slot.kind_and_name_bytes.load(kAcquire);
  std::array<uint64_t, kNameWords> words{};
  for (size_t i = 0; i < kNameWords; ++i) words[i] = slot.name[i].load(kAcquire);
  if (slot.state.load(std::memory_order_relaxed) != state) return false;
  event.kind = static_cast<FlightKind>(kind_and_name_bytes >> 32);
  event.name.assign(reinterpret_cast<const char*>(words.data()),
                    std::min<uint64_t>(kNameBytesMax, kind_and_name_bytes & 0xFFFF'FFFF));
  // Control characters in a tensor name must not break the line.
  std::ranges::replace_if(
      event.name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return true;
}

std::vector<std::string> FlightRecorder::Lines() const {
  std::vector<Event> events;
  events.reserve(capacity_);
  for (uint32_t i = 0; i < capacity_; ++i) {
    Event event;
    if (Read(slots_[i], event)) events.push_back(std::move(event));
  }
  // The slots are in the order of the ring, and some may have been lost to a newer event.
  std::ranges::sort(events, {}, &Event::order);
  std::vector<std::string> lines;
  lines.reserve(events.size());
  for (const Event& event : events) {
    std::string line =
        fmt::format("{} UTC  {:<12}", TimeOfDay(event.time_ns + day_minus_steady_ns_),
                    FlightKindName(event.kind));
    const auto out = std::back_inserter(line);
    if (!event.name.empty()) fmt::format_to(out, " '{}'", event.name);
    const auto& [number, bytes, collective] = event.detail;
    const char* comma = "";
    const auto add = [&](auto format, uint64_t value) {
      if (value == 0) return;
      fmt::format_to(out, "{} ", comma);
      fmt::format_to(out, format, value);
      comma = ",";
    };
    add(FMT_STRING("number {}"), number);
    add(FMT_STRING("{} bytes"), bytes);
    add(FMT_STRING("collective {}"), collective);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace lmdbio::trace
