// Q3: a process is killed before, after or while its stream does the work that the stream of a
// survivor waits for. Each trial has processes of its own.

#include <array>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "bench/device/probe_trials.h"

namespace lmdbio::probe {
namespace {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceMark;
using device::DeviceMemory;
using device::DeviceStream;
using device::PinnedBytes;

enum class WaitBy { kEvent, kMark };
// The victim ends before it has enqueued its record or raise, after the stream has done it, or with
// it enqueued behind work that is never done.
enum class KilledAt { kBefore, kAfter, kUnderWay };

constexpr int kSurvivor = 0;
constexpr int kVictim = 1;
constexpr const char* kDrains = "the survivor's stream drains";
constexpr const char* kOther = "another stream of the survivor works";
constexpr const char* kPoisoned = "the survivor's stream drains after poison";
constexpr uint64_t kWorkBytes = 4096;

std::string RowName(WaitBy by, KilledAt at, const char* what) {
  const char* const noun = by == WaitBy::kEvent ? "event" : "mark";
  const char* const verb = by == WaitBy::kEvent ? "recorded" : "raised";
  switch (at) {
    case KilledAt::kBefore:
      return fmt::format("{}, killed before it {}: {}", noun, verb, what);
    case KilledAt::kAfter:
      return fmt::format("{}, killed after it {}: {}", noun, verb, what);
    default:
      return fmt::format("{}, killed with unfinished work before it {}: {}", noun, verb, what);
  }
}

class Victim {
 public:
  Victim(const ProbePart& part, WaitBy by, KilledAt at) : part_(part), by_(by), at_(at) {}

  Status Play() {
    LMDBIO_TRY(const PinnedBytes marks, part_.PinMarks());
    LMDBIO_TRY(const DeviceMark mark, DeviceMark::In(marks, MarkOffset(kVictim)));
    LMDBIO_TRY(const DeviceMark gate, DeviceMark::In(marks, kGateOffset));
    LMDBIO_TRY(DeviceStream stream, part_.device().MakeStream());
    std::optional<DeviceEvent> event;
    if (by_ == WaitBy::kEvent) LMDBIO_TRY_VOID(Share(event));
    if (at_ == KilledAt::kUnderWay)
      LMDBIO_TRY_VOID(stream.AwaitAll(std::array{device::MarkWait{gate, 1}}));
    if (at_ != KilledAt::kBefore) {
      LMDBIO_TRY_VOID(event ? stream.Record(*event) : stream.Raise(mark, 1));
    }
    if (at_ == KilledAt::kAfter) LMDBIO_TRY_VOID(part_.AwaitDrained(stream));
    part_.Reach(1);
    LMDBIO_TRY_VOID(part_.AwaitStep(1));  // the survivor waits
    part_.AwaitKill();
  }

 private:
  Status Share(std::optional<DeviceEvent>& event) {
    LMDBIO_TRY(DeviceEvent made, part_.device().MakeEvent(DeviceEventKind::kShared));
    LMDBIO_TRY(part_.board().events[kVictim], part_.device().Share(made));
    event.emplace(std::move(made));
    return {};
  }

  const ProbePart& part_;
  WaitBy by_;
  KilledAt at_;
};

class Survivor {
 public:
  Survivor(const ProbePart& part, WaitBy by, KilledAt at) : part_(part), by_(by), at_(at) {}

  Status Play() {
    LMDBIO_TRY(const PinnedBytes marks, part_.PinMarks());
    LMDBIO_TRY(const DeviceMark mark, DeviceMark::In(marks, MarkOffset(kVictim)));
    LMDBIO_TRY(const PinnedRoom host, PinnedRoom::Make(part_, kWorkBytes));
    LMDBIO_TRY(const DeviceMemory memory, part_.device().Allocate(kWorkBytes));
    LMDBIO_TRY(DeviceStream stream, part_.device().MakeStream());
    LMDBIO_TRY(DeviceStream other, part_.device().MakeStream());
    LMDBIO_TRY_VOID(part_.AwaitStep(1));
    std::optional<DeviceEvent> event;
    if (by_ == WaitBy::kEvent) {
      LMDBIO_TRY(DeviceEvent imported, part_.device().Import(part_.board().events[kVictim]));
      event.emplace(std::move(imported));
    }
    LMDBIO_TRY_VOID(event ? stream.Await(*event)
                          : stream.AwaitAll(std::array{device::MarkWait{mark, 1}}));
    LMDBIO_TRY_VOID(stream.Fill(memory.begin(), std::byte{7}, kWorkBytes));
    part_.Reach(1);
    part_.AwaitEndOfOther();
    SayDrains(kDrains, stream);
    SayOther(other, host, memory);
    if (by_ == WaitBy::kMark && at_ != KilledAt::kAfter) {
      mark.Poison();
      SayDrains(kPoisoned, stream);
    }
    ProbePart::Leave();
  }

 private:
  void SayDrains(const char* what, const DeviceStream& stream) {
    const std::string row = RowName(by_, at_, what);
    const auto seconds = part_.Drain(stream, part_.options().drain_seconds);
    if (!seconds) return part_.SayError(row, seconds.error());
    if (*seconds) return part_.SayFigure(row, "s", {**seconds});
    const bool needs_poison = by_ == WaitBy::kMark && what == kDrains;
    part_.Say({.name = row,
               .state = RowState::kNotDrained,
               .note = fmt::format("not in {} s{}", part_.options().drain_seconds,
                                   needs_poison ? "; poison is needed" : "")});
  }

  // As a program that saves its state after an error.
  void SayOther(DeviceStream& stream, const PinnedRoom& host, const DeviceMemory& memory) {
    const std::string row = RowName(by_, at_, kOther);
    const Status copied = stream.CopyOut(host.get(), 0, memory.begin(), kWorkBytes);
    if (!copied) return part_.SayError(row, copied.error());
    const auto seconds = part_.Drain(stream, part_.options().drain_seconds);
    if (!seconds) return part_.SayError(row, seconds.error());
    if (*seconds) return part_.SayYes(row);
    part_.Say({.name = row,
               .state = RowState::kNotDrained,
               .note = fmt::format("not in {} s", part_.options().drain_seconds)});
  }

  const ProbePart& part_;
  WaitBy by_;
  KilledAt at_;
};

template <WaitBy kBy, KilledAt kAt>
Status PlayKilled(const ProbePart& part) {
  return part.role() == kVictim ? Victim(part, kBy, kAt).Play() : Survivor(part, kBy, kAt).Play();
}

template <WaitBy kBy, KilledAt kAt>
void AddOne(std::vector<Trial>& trials) {
  Trial trial = {.question = "Q3",
                 .rows = {RowName(kBy, kAt, kDrains), RowName(kBy, kAt, kOther)},
                 .process_count = 2,
                 .seconds_max = 15,
                 .state_if_ended = RowState::kNotDrained,
                 .play = &PlayKilled<kBy, kAt>};
  if (kBy == WaitBy::kMark && kAt != KilledAt::kAfter) {
    trial.rows.push_back(RowName(kBy, kAt, kPoisoned));
  }
  trials.push_back(std::move(trial));
}

}  // namespace

void AddKilled(std::vector<Trial>& trials) {
  AddOne<WaitBy::kEvent, KilledAt::kBefore>(trials);
  AddOne<WaitBy::kEvent, KilledAt::kAfter>(trials);
  AddOne<WaitBy::kEvent, KilledAt::kUnderWay>(trials);
  AddOne<WaitBy::kMark, KilledAt::kBefore>(trials);
  AddOne<WaitBy::kMark, KilledAt::kAfter>(trials);
  AddOne<WaitBy::kMark, KilledAt::kUnderWay>(trials);
}

}  // namespace lmdbio::probe
