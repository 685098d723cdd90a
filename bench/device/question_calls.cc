// Q8: the cost of single calls, for the thread that makes them.

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "bench/device/probe_trials.h"

namespace lmdbio::probe {
namespace {

using device::CacheCheck;
using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceMark;
using device::DeviceMemory;
using device::DeviceStream;
using device::DriverTable;
using device::PinnedBytes;
using device::PointerCache;

constexpr const char* kRecord = "event: record";
constexpr const char* kAwait = "event: wait of a stream";
constexpr const char* kQuery = "event: query";
constexpr const char* kSeen = "event: from its record until the host sees it";
constexpr const char* kStreamQuery = "stream: query";
constexpr const char* kSynchronize = "stream: synchronise, nothing to wait for";
constexpr const char* kCopy = "stream: copy of 8 bytes on the device, enqueued";
constexpr const char* kRaise = "mark: raise by a stream";
constexpr const char* kAwaitOne = "mark: wait of a stream, reached already";
constexpr const char* kAwaitMany = "mark: wait of a stream for 8 in one call";
constexpr const char* kContext = "context: ask which is current";
constexpr const char* kPointer = "pointer: query of the driver, seven attributes";
constexpr const char* kOwnHit = "pointer: hit in the cache, memory of lmdbio";
constexpr const char* kCheckedHit = "pointer: hit in the cache, checked by the buffer id";
constexpr const char* kUncheckedHit = "pointer: hit in the cache, not checked";
constexpr const char* kLaunch = "kernel: launch";

constexpr int kQueued = 100;     // calls a sample that leave work in the queue of the driver
constexpr int kUnqueued = 1000;  // other calls a sample

class CallBench {
 public:
  CallBench(const ProbePart& part, DeviceStream& stream) : part_(part), stream_(stream) {}

  // Nanoseconds a call.
  template <typename Call>
  void Row(const char* row, int calls, Call call) {
    part_.SayResult(row, "ns", Costs(calls, call));
  }

 private:
  template <typename Call>
  Result<std::vector<double>> Costs(int calls, Call call) {
    std::vector<double> nanos;
    for (int i = 0; i <= part_.options().sample_count; ++i) {
      const double begin = SecondsNow();
      for (int k = 0; k < calls; ++k) LMDBIO_TRY_VOID(call());
      const double seconds = SecondsNow() - begin;
      if (i > 0) nanos.push_back(seconds * 1e9 / calls);  // the first fills caches
      LMDBIO_TRY_VOID(part_.AwaitDrained(stream_));
    }
    return nanos;
  }

  const ProbePart& part_;
  DeviceStream& stream_;
};

void PlayEvents(const ProbePart& part, CallBench& bench, DeviceStream& stream, DeviceEvent& event) {
  bench.Row(kRecord, kQueued, [&] { return stream.Record(event); });
  bench.Row(kAwait, kQueued, [&] { return stream.Await(event); });
  bench.Row(kQuery, kUnqueued, [&]() -> Status {
    LMDBIO_TRY_VOID(event.IsDone());
    return {};
  });
  bench.Row(kSeen, 1, [&]() -> Status {
    LMDBIO_TRY_VOID(stream.Record(event));
    while (true) {
      LMDBIO_TRY(const bool is_done, event.IsDone());
      if (is_done) return {};
    }
  });
  bench.Row(kStreamQuery, kUnqueued, [&]() -> Status {
    LMDBIO_TRY_VOID(stream.IsDone());
    return {};
  });
  bench.Row(kSynchronize, kQueued, [&] { return stream.Synchronize(); });
  device::ContextHandle current = nullptr;
  bench.Row(kContext, kUnqueued, [&]() -> Status {
    if (part.driver().CtxGetCurrent(&current) == device::driver_code::kSuccess) return {};
    return Fail(ErrorCode::kInternal, "cuCtxGetCurrent fails");
  });
}

Status PlayMarkCalls(const ProbePart& part, CallBench& bench, DeviceStream& stream) {
  LMDBIO_TRY(const PinnedBytes pinned, part.PinMarks());
  std::vector<device::MarkWait> waits;
  for (uint64_t i = 0; i < 8; ++i) {
    LMDBIO_TRY(const DeviceMark mark, DeviceMark::In(pinned, 64 * i));
    waits.push_back({mark, 0});
  }
  bench.Row(kRaise, kQueued, [&] { return stream.Raise(waits[0].mark, 1); });
  bench.Row(kAwaitOne, kQueued, [&] { return stream.AwaitAll(std::array{waits[0]}); });
  bench.Row(kAwaitMany, kQueued, [&] { return stream.AwaitAll(waits); });
  return {};
}

// Memory that the program has allocated itself, so that lmdbio does not know it.
class ForeignMemory {
 public:
  static Result<ForeignMemory> Allocate(const ProbePart& part) {
    uint64_t address = 0;
    LMDBIO_TRY_VOID(part.context().Run(
        "cuMemAlloc", [&](const DriverTable& driver) { return driver.MemAlloc(&address, 4096); }));
    return ForeignMemory(part, address);
  }
  ForeignMemory(ForeignMemory&& other) noexcept
      : part_(other.part_), address_(std::exchange(other.address_, 0)) {}
  ForeignMemory& operator=(ForeignMemory&&) = delete;
  ~ForeignMemory() {
    if (address_ != 0) part_->driver().MemFree(address_);
  }
  const void* pointer() const { return reinterpret_cast<const void*>(address_); }

 private:
  ForeignMemory(const ProbePart& part, uint64_t address) : part_(&part), address_(address) {}
  const ProbePart* part_;
  uint64_t address_;
};

Status PlayPointers(const ProbePart& part, CallBench& bench) {
  LMDBIO_TRY(const ForeignMemory foreign, ForeignMemory::Allocate(part));
  LMDBIO_TRY(const DeviceMemory own, part.device().Allocate(4096));
  const auto* const own_pointer = reinterpret_cast<const void*>(own.begin().value);
  PointerCache checked(CacheCheck::kBufferId);
  PointerCache unchecked(CacheCheck::kNone);
  const auto describe = [&](PointerCache& cache) -> Status {
    LMDBIO_TRY_VOID(cache.Describe(part.context(), foreign.pointer()));
    return {};
  };
  bench.Row(kPointer, kUnqueued, [&]() -> Status {
    LMDBIO_TRY_VOID(device::QueryPointer(part.context(), foreign.pointer()));
    return {};
  });
  bench.Row(kCheckedHit, kUnqueued, [&] { return describe(checked); });
  bench.Row(kUncheckedHit, kUnqueued, [&] { return describe(unchecked); });
  bench.Row(kOwnHit, kUnqueued, [&]() -> Status {
    LMDBIO_TRY_VOID(part.device().Describe(own_pointer));
    return {};
  });
  return {};
}

Status PlayCalls(const ProbePart& part) {
  part.Say({.name = kLaunch, .note = "needs kernels"});
  LMDBIO_TRY(DeviceStream stream, part.device().MakeStream());
  LMDBIO_TRY(DeviceEvent event, part.device().MakeEvent(DeviceEventKind::kLocal));
  LMDBIO_TRY(const DeviceMemory memory, part.device().Allocate(16));
  CallBench bench(part, stream);
  PlayEvents(part, bench, stream, event);
  bench.Row(kCopy, kQueued, [&] { return stream.Copy(memory.begin() + 8, memory.begin(), 8); });
  if (const Status status = PlayMarkCalls(part, bench, stream); !status) {
    for (const char* const row : {kRaise, kAwaitOne, kAwaitMany}) {
      part.SayError(row, status.error());
    }
  }
  return PlayPointers(part, bench);
}

}  // namespace

void AddCalls(std::vector<Trial>& trials) {
  trials.push_back(
      {.question = "Q8",
       .rows = {kLaunch, kRecord, kAwait, kQuery, kSeen, kStreamQuery, kSynchronize, kCopy, kRaise,
                kAwaitOne, kAwaitMany, kContext, kPointer, kCheckedHit, kUncheckedHit, kOwnHit},
       .seconds_max = 30,
       .play = &PlayCalls});
}

}  // namespace lmdbio::probe
