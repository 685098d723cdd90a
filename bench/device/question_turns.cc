// Q4: the cost of a turn, from the stream of one process to that of another, and between two
// streams of one process.

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "bench/device/probe_trials.h"

namespace lmdbio::probe {
namespace {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceMark;
using device::DeviceMemory;
using device::DeviceStream;
using device::PinnedBytes;

constexpr const char* kEventsInStep = "events, two processes, enqueued in step as by a job";
constexpr const char* kEvents = "events, two processes";
constexpr const char* kEventsFill = "events, two processes, each fills 4 KiB";
constexpr const char* kMarks = "marks, two processes";
constexpr const char* kMarksFill = "marks, two processes, each fills 4 KiB";
constexpr const char* kEventsAlone = "events, two streams of one process, each fills 4 KiB";
constexpr const char* kMarksAlone = "marks, two streams of one process, each fills 4 KiB";

constexpr uint64_t kRounds = 50;  // a round is two turns; queues of drivers hold some hundred calls
constexpr uint64_t kFillBytes = 4096;

enum class TurnBy { kEvent, kMark };
enum class Fills { kNo, kYes };

// One of the two players: its stream, and the two marks and events.
class Player {
 public:
  Player(const ProbePart& part, int seat) : part_(part), seat_(seat) {}

  Status Prepare(const PinnedBytes& marks) {
    LMDBIO_TRY(const DeviceMark own, DeviceMark::In(marks, MarkOffset(seat_)));
    LMDBIO_TRY(const DeviceMark other, DeviceMark::In(marks, MarkOffset(1 - seat_)));
    LMDBIO_TRY(const DeviceMark gate, DeviceMark::In(marks, kGateOffset));
    marks_.emplace(Marks{own, other, gate});
    LMDBIO_TRY(DeviceStream stream, part_.device().MakeStream());
    stream_.emplace(std::move(stream));
    LMDBIO_TRY(DeviceMemory memory, part_.device().Allocate(kFillBytes));
    memory_.emplace(std::move(memory));
    return {};
  }
  void SetEvents(DeviceEvent* own, const DeviceEvent* other) {
    own_event_ = own;
    other_event_ = other;
  }

  const DeviceMark& gate() const { return marks_->gate; }
  const DeviceStream& stream() const { return *stream_; }

  Status AwaitGate(uint64_t value) {
    return stream_->AwaitAll(std::array{device::MarkWait{marks_->gate, value}});
  }

  Status Give(TurnBy by, Fills fills, uint64_t turn) {
    if (fills == Fills::kYes) {
      LMDBIO_TRY_VOID(stream_->Fill(memory_->begin(), std::byte{1}, kFillBytes));
    }
    return by == TurnBy::kEvent ? stream_->Record(*own_event_) : stream_->Raise(marks_->own, turn);
  }

  Status Take(TurnBy by, uint64_t turn) {
    return by == TurnBy::kEvent
               ? stream_->Await(*other_event_)
               : stream_->AwaitAll(std::array{device::MarkWait{marks_->other, turn}});
  }

 private:
  struct Marks {
    DeviceMark own;
    DeviceMark other;
    DeviceMark gate;
  };

  const ProbePart& part_;
  int seat_;
  std::optional<Marks> marks_;
  std::optional<DeviceStream> stream_;
  std::optional<DeviceMemory> memory_;
  DeviceEvent* own_event_ = nullptr;
  const DeviceEvent* other_event_ = nullptr;
};

double MicrosPerTurn(double seconds) { return seconds * 1e6 / (2 * kRounds); }

// Two processes. Both play all rows in the same order; role 0 measures.
class Match {
 public:
  explicit Match(const ProbePart& part) : part_(part), player_(part, part.role()) {}

  Status Play() {
    LMDBIO_TRY(const PinnedBytes marks, part_.PinMarks());
    LMDBIO_TRY_VOID(player_.Prepare(marks));
    LMDBIO_TRY(const bool has_events, ExchangeEvents());
    if (has_events) LMDBIO_TRY_VOID(Row(kEventsInStep, TurnBy::kEvent, Fills::kNo, Gate::kNo));
    if (!part_.device().facts().can_await_marks) {
      return Fail(ErrorCode::kUnsupported, "the device or its driver has no 64-bit marks");
    }
    LMDBIO_TRY_VOID(Row(kMarks, TurnBy::kMark, Fills::kNo, Gate::kYes));
    LMDBIO_TRY_VOID(Row(kMarksFill, TurnBy::kMark, Fills::kYes, Gate::kYes));
    if (has_events) {
      LMDBIO_TRY_VOID(Row(kEvents, TurnBy::kEvent, Fills::kNo, Gate::kYes));
      LMDBIO_TRY_VOID(Row(kEventsFill, TurnBy::kEvent, Fills::kYes, Gate::kYes));
    }
    other_.reset();  // events end after their importers
    return Meet();
  }

 private:
  enum class Gate { kNo, kYes };

  // All that one process has done before is seen by the other afterwards.
  Status Meet() {
    part_.Reach(++step_);
    return part_.AwaitStep(step_);
  }

  // False if one of the two has no events for the other; that one says the rows.
  Result<bool> ExchangeEvents() {
    const auto own = static_cast<size_t>(part_.role());
    const auto other = static_cast<size_t>(part_.other());
    Result<DeviceEvent> made = part_.device().MakeEvent(DeviceEventKind::kShared);
    Status shared = Share(made);
    LMDBIO_TRY_VOID(Meet());
    if (shared && part_.board().has_event[other].load() != 0) {
      Result<DeviceEvent> opened = part_.device().Import(part_.board().events[other]);
      if (opened) {
        own_.emplace(std::move(*made));
        other_.emplace(std::move(*opened));
        player_.SetEvents(&*own_, &*other_);
      } else {
        shared = Fail(std::move(opened).error());
        part_.board().has_event[own].store(0);
      }
    }
    LMDBIO_TRY_VOID(Meet());
    if (shared && part_.board().has_event[other].load() != 0) return true;
    if (shared) return false;  // the other process has the reason
    for (const char* const row : {kEventsInStep, kEvents, kEventsFill}) {
      part_.SayError(row, shared.error());
    }
    return false;
  }

  Status Share(Result<DeviceEvent>& made) {
    if (!made) return Fail(made.error().Copy());
    const auto own = static_cast<size_t>(part_.role());
    LMDBIO_TRY(part_.board().events[own], part_.device().Share(*made));
    part_.board().has_event[own].store(1);
    return {};
  }

  Status Row(const char* row, TurnBy by, Fills fills, Gate gate) {
    std::vector<double> micros;
    for (int i = 0; i < part_.options().sample_count; ++i) {
      LMDBIO_TRY(const double seconds, Sample(by, fills, gate));
      micros.push_back(MicrosPerTurn(seconds));
    }
    if (part_.role() == 0) part_.SayFigure(row, "us/turn", std::move(micros));
    return {};
  }

  Result<double> Sample(TurnBy by, Fills fills, Gate gate) {
    ++gate_value_;
    LMDBIO_TRY_VOID(Meet());
    double begin = SecondsNow();
    if (gate == Gate::kYes) LMDBIO_TRY_VOID(player_.AwaitGate(gate_value_));
    for (uint64_t i = 0; i < kRounds; ++i) LMDBIO_TRY_VOID(Round(by, fills));
    if (gate == Gate::kYes) {
      LMDBIO_TRY_VOID(Meet());  // both have enqueued all
      begin = SecondsNow();
      if (part_.role() == 0) player_.gate().Raise(gate_value_);
    }
    LMDBIO_TRY_VOID(part_.AwaitDrained(player_.stream()));
    return SecondsNow() - begin;
  }

  // A wait for an event means its last record, so that is enqueued first: the processes meet.
  Status Round(TurnBy by, Fills fills) {
    ++turn_;
    if (part_.role() == 0) {
      LMDBIO_TRY_VOID(player_.Give(by, fills, turn_));
      if (by == TurnBy::kEvent) LMDBIO_TRY_VOID(Meet());
      if (by == TurnBy::kEvent) LMDBIO_TRY_VOID(Meet());
      return player_.Take(by, turn_);
    }
    if (by == TurnBy::kEvent) LMDBIO_TRY_VOID(Meet());
    LMDBIO_TRY_VOID(player_.Take(by, turn_));
    LMDBIO_TRY_VOID(player_.Give(by, fills, turn_));
    return by == TurnBy::kEvent ? Meet() : Status();
  }

  const ProbePart& part_;
  Player player_;
  std::optional<DeviceEvent> own_;
  std::optional<DeviceEvent> other_;
  uint64_t step_ = 0;
  uint64_t turn_ = 0;
  uint64_t gate_value_ = 0;
};

// Two streams of one process: what is left when no process is switched.
Status PlayAlone(const ProbePart& part) {
  LMDBIO_TRY(const PinnedBytes marks, part.PinMarks());
  std::array<Player, 2> players = {Player(part, 0), Player(part, 1)};
  for (Player& player : players) LMDBIO_TRY_VOID(player.Prepare(marks));
  LMDBIO_TRY(DeviceEvent first, part.device().MakeEvent(DeviceEventKind::kLocal));
  LMDBIO_TRY(DeviceEvent second, part.device().MakeEvent(DeviceEventKind::kLocal));
  players[0].SetEvents(&first, &second);
  players[1].SetEvents(&second, &first);
  uint64_t turn = 0;
  uint64_t gate_value = 0;
  const auto sample = [&](TurnBy by) -> Result<double> {
    ++gate_value;
    for (Player& player : players) LMDBIO_TRY_VOID(player.AwaitGate(gate_value));
    for (uint64_t i = 0; i < kRounds; ++i) {
      ++turn;
      LMDBIO_TRY_VOID(players[0].Give(by, Fills::kYes, turn));
      LMDBIO_TRY_VOID(players[1].Take(by, turn));
      LMDBIO_TRY_VOID(players[1].Give(by, Fills::kYes, turn));
      LMDBIO_TRY_VOID(players[0].Take(by, turn));
    }
    const double begin = SecondsNow();
    players[0].gate().Raise(gate_value);
    for (const Player& player : players) LMDBIO_TRY_VOID(part.AwaitDrained(player.stream()));
    return SecondsNow() - begin;
  };
  for (const auto& [by, row] :
       {std::pair(TurnBy::kMark, kMarksAlone), std::pair(TurnBy::kEvent, kEventsAlone)}) {
    std::vector<double> micros;
    for (int i = 0; i < part.options().sample_count; ++i) {
      LMDBIO_TRY(const double seconds, sample(by));
      micros.push_back(MicrosPerTurn(seconds));
    }
    part.SayFigure(row, "us/turn", std::move(micros));
  }
  return {};
}

Status PlayTurns(const ProbePart& part) { return Match(part).Play(); }

}  // namespace

void AddTurns(std::vector<Trial>& trials) {
  trials.push_back({.question = "Q4",
                    .rows = {kEventsInStep, kEvents, kEventsFill, kMarks, kMarksFill},
                    .process_count = 2,
                    .seconds_max = 40,
                    .play = &PlayTurns});
  trials.push_back({.question = "Q4",
                    .rows = {kMarksAlone, kEventsAlone},
                    .seconds_max = 20,
                    .play = &PlayAlone});
}

}  // namespace lmdbio::probe
