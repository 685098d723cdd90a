// Q1: device memory and events of another process.

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>

#include "bench/device/probe_trials.h"

namespace lmdbio::probe {
namespace {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceMark;
using device::DeviceMemory;
using device::DeviceStream;

constexpr uint64_t kSharedBytes = 16 << 20;
constexpr std::byte kBefore{0x3C};
constexpr std::byte kAfter{0xA5};

constexpr const char* kOpens = "memory: another process maps it";
constexpr const char* kIsRight = "memory: a copy out of it has the bytes of its owner";
constexpr const char* kRate = "memory: a copy out of it on the device, 16 MiB";
constexpr const char* kEventOpens = "event: another process opens it";
constexpr const char* kEventWaits = "event: a stream of another process waits for it";

// Role 0 owns memory and event. Its stream fills the memory again behind a gate, and records.
class Owner {
 public:
  explicit Owner(const ProbePart& part) : part_(part) {}

  Status Play() {
    const uint64_t size_bytes = part_.AtMost(kSharedBytes);
    LMDBIO_TRY(const DeviceMemory memory, part_.device().Allocate(size_bytes));
    LMDBIO_TRY(DeviceStream stream, part_.device().MakeStream());
    LMDBIO_TRY_VOID(stream.Fill(memory.begin(), kBefore, size_bytes));
    LMDBIO_TRY_VOID(part_.AwaitDrained(stream));
    ShareMemory(memory);
    Result<DeviceEvent> event = ShareEvent();
    part_.Reach(1);
    LMDBIO_TRY_VOID(part_.AwaitStep(1));  // the importer has looked at the memory
    LMDBIO_TRY_VOID(Record(stream, memory, event));
    part_.Reach(2);
    LMDBIO_TRY_VOID(part_.AwaitDrained(stream));  // the importer opens the gate
    LMDBIO_TRY_VOID(part_.AwaitStep(2));
    part_.AwaitEndOfOther();  // the owner frees memory and event last
    return {};
  }

 private:
  void ShareMemory(const DeviceMemory& memory) {
    const auto ticket = part_.device().Share(memory);
    if (!ticket) {
      for (const char* const row : {kOpens, kIsRight, kRate}) part_.SayError(row, ticket.error());
      return;
    }
    part_.board().memory = *ticket;
    part_.board().has_memory.store(1);
  }

  Result<DeviceEvent> ShareEvent() {
    Result<DeviceEvent> event = part_.device().MakeEvent(DeviceEventKind::kShared);
    const auto ticket = event ? part_.device().Share(*event)
                              : Result<device::EventTicket>(Fail(event.error().Copy()));
    if (!ticket) {
      for (const char* const row : {kEventOpens, kEventWaits}) part_.SayError(row, ticket.error());
      return event;
    }
    part_.board().events[0] = *ticket;
    part_.board().has_event[0].store(1);
    return event;
  }

  // Without marks there is no gate, and the fill may be done before anybody waits.
  Status Record(DeviceStream& stream, const DeviceMemory& memory, Result<DeviceEvent>& event) {
    if (part_.device().facts().can_await_marks) {
      LMDBIO_TRY(device::PinnedBytes marks, part_.PinMarks());
      pinned_.emplace(std::move(marks));
      LMDBIO_TRY(const DeviceMark gate, DeviceMark::In(*pinned_, kGateOffset));
      LMDBIO_TRY_VOID(stream.AwaitAll(std::array{device::MarkWait{gate, 1}}));
    }
    LMDBIO_TRY_VOID(stream.Fill(memory.begin(), kAfter, memory.size_bytes()));
    return event ? stream.Record(*event) : Status();
  }

  const ProbePart& part_;
  std::optional<device::PinnedBytes> pinned_;
};

// Role 1 imports both.
class Importer {
 public:
  explicit Importer(const ProbePart& part) : part_(part) {}

  Status Play() {
    LMDBIO_TRY(DeviceStream stream, part_.device().MakeStream());
    LMDBIO_TRY(PinnedRoom host, PinnedRoom::Make(part_, part_.AtMost(kSharedBytes)));
    LMDBIO_TRY_VOID(part_.AwaitStep(1));
    std::optional<DeviceMemory> memory;
    if (part_.board().has_memory.load() != 0) memory = LookAtMemory(stream, host);
    std::optional<DeviceEvent> event;
    if (part_.board().has_event[0].load() != 0) event = OpenEvent();
    part_.Reach(1);
    LMDBIO_TRY_VOID(part_.AwaitStep(2));  // the owner has recorded
    if (event) {
      if (const Status status = LookAtEvent(stream, host, memory, *event); !status) {
        part_.SayError(kEventWaits, status.error());
      }
    }
    OpenGate();
    part_.Reach(2);
    LMDBIO_TRY_VOID(part_.AwaitDrained(stream));
    return {};
  }

 private:
  std::optional<DeviceMemory> LookAtMemory(DeviceStream& stream, const PinnedRoom& host) {
    Result<DeviceMemory> memory = part_.device().Import(part_.board().memory);
    if (!memory) {
      for (const char* const row : {kOpens, kIsRight, kRate}) part_.SayError(row, memory.error());
      return std::nullopt;
    }
    part_.SayYes(kOpens);
    const Result<bool> is_right = HasBytes(stream, host, *memory, kBefore);
    if (!is_right) {
      part_.SayError(kIsRight, is_right.error());
    } else if (!*is_right) {
      part_.Say({.name = kIsRight, .state = RowState::kFailed, .note = "it has other bytes"});
    } else {
      part_.SayYes(kIsRight);
    }
    part_.SayResult(kRate, "GB/s", Rates(stream, *memory));
    return std::move(*memory);
  }

  std::optional<DeviceEvent> OpenEvent() {
    Result<DeviceEvent> event = part_.device().Import(part_.board().events[0]);
    if (event) {
      part_.SayYes(kEventOpens);
      return std::move(*event);
    }
    for (const char* const row : {kEventOpens, kEventWaits}) part_.SayError(row, event.error());
    return std::nullopt;
  }

  // The owner's fill is behind the gate, so the copy must not be done before the gate opens.
  Status LookAtEvent(DeviceStream& stream, const PinnedRoom& host,
                     const std::optional<DeviceMemory>& memory, const DeviceEvent& event) {
    LMDBIO_TRY_VOID(stream.Await(event));
    if (memory) {
      LMDBIO_TRY_VOID(stream.CopyOut(host.get(), 0, memory->begin(), memory->size_bytes()));
    }
    const bool has_gate = part_.device().facts().can_await_marks;
    if (has_gate) {
      LMDBIO_TRY(const auto early, part_.Drain(stream, 0.05));
      if (early) return Fail(ErrorCode::kInternal, "the stream did not wait");
    }
    OpenGate();
    LMDBIO_TRY_VOID(part_.AwaitDrained(stream));
    if (memory && host.data()[memory->size_bytes() - 1] != kAfter) {
      return Fail(ErrorCode::kInternal, "the stream went on before the work of the owner");
    }
    part_.SayYes(kEventWaits, has_gate ? "" : "only that it ends: without marks there is no gate");
    return {};
  }

  Result<bool> HasBytes(DeviceStream& stream, const PinnedRoom& host, const DeviceMemory& memory,
                        std::byte value) {
    LMDBIO_TRY_VOID(stream.CopyOut(host.get(), 0, memory.begin(), memory.size_bytes()));
    LMDBIO_TRY_VOID(part_.AwaitDrained(stream));
    const MutableBytes bytes = host.get().bytes().first(memory.size_bytes());
    return std::all_of(bytes.begin(), bytes.end(), [&](std::byte one) { return one == value; });
  }

  Result<std::vector<double>> Rates(DeviceStream& stream, const DeviceMemory& memory) {
    LMDBIO_TRY(const DeviceMemory own, part_.device().Allocate(memory.size_bytes()));
    std::vector<double> rates;
    for (int i = 0; i < part_.options().sample_count; ++i) {
      constexpr int kCopiesASample = 16;
      const double begin = SecondsNow();
      for (int k = 0; k < kCopiesASample; ++k) {
        LMDBIO_TRY_VOID(stream.Copy(own.begin(), memory.begin(), memory.size_bytes()));
      }
      LMDBIO_TRY_VOID(part_.AwaitDrained(stream));
      rates.push_back(2.0 * kCopiesASample * static_cast<double>(memory.size_bytes()) / 1e9 /
                      (SecondsNow() - begin));
    }
    return rates;
  }

  void OpenGate() {
    auto& word = *reinterpret_cast<uint64_t*>(part_.board().marks.data() + kGateOffset);
    std::atomic_ref<uint64_t>(word).store(1);
  }

  const ProbePart& part_;
};

Status PlaySharing(const ProbePart& part) {
  return part.role() == 0 ? Owner(part).Play() : Importer(part).Play();
}

}  // namespace

void AddSharing(std::vector<Trial>& trials) {
  trials.push_back({.question = "Q1",
                    .rows = {kOpens, kIsRight, kRate, kEventOpens, kEventWaits},
                    .process_count = 2,
                    .play = &PlaySharing});
}

}  // namespace lmdbio::probe
