#include "lmdbio/sync/over_library/library_collectives.h"

#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/over_device/rank_agreement.h"

namespace lmdbio::sync {
namespace {

using device::DeviceEvent;
using device::DeviceStream;
using Clock = std::chrono::steady_clock;

// The library's call is done before a result is enqueued.
class NeverVoid final : public ResultState {
 public:
  bool is_void() const override { return false; }
};

}  // namespace

Result<std::unique_ptr<LibraryCollectives>> LibraryCollectives::Make(ranks::Group& group,
                                                                     const LibraryParts& parts,
                                                                     uint64_t arena_bytes) {
  LMDBIO_TRY(const std::vector<GpuFacts> all,
             GatherFacts(group, FactsOf(parts.gpu, parts.kernels)));
  if (const std::string obstacle = LackOfKernels(all); !obstacle.empty()) {
    return Fail(ErrorCode::kUnsupported, fmt::format("the ranks cannot use {} on their GPUs: {}",
                                                     parts.library->name(), obstacle));
  }
  LMDBIO_TRY(device::DeviceMemory arena, ranks::ForAll(group, parts.gpu.Allocate(arena_bytes)));
  LMDBIO_TRY(DeviceEvent event,
             ranks::ForAll(group, parts.gpu.MakeEvent(device::DeviceEventKind::kLocal)));
  return std::unique_ptr<LibraryCollectives>(
      new LibraryCollectives(parts, group.host_name().empty(), std::move(arena), std::move(event)));
}

// The calls of other ranks, and one that was given up here, may still use the memory of this rank.
LibraryCollectives::~LibraryCollectives() {
  if (has_left_ || parts_.meetings.size() == 1) return;
  KeepForever(std::move(arena_));
  KeepShared(parts_.library);
}

Result<CallOutcome> LibraryCollectives::AllReduce(const CallTag& tag, const DeviceValues& values,
                                                  const Reduction& reduction,
                                                  DeviceStream& stream) {
  LMDBIO_TRY_VOID(kernels::PlanScale(values.type, reduction.scale));
  LMDBIO_TRY_VOID(CheckInside(values, arena()));
  const DeviceArray array = {ResultOf(values), values.count, values.type};
  LibraryCall call;
  if (array.count > 0) {
    call = [array, op = reduction.op](BlockingLibrary& library) {
      return library.AllReduce(array, op);
    };
  }
  LMDBIO_TRY(
      const CallOutcome outcome,
      Run({DigestOfReduction(tag, values, reduction), tag.is_declined}, std::move(call), stream));
  if (outcome == CallOutcome::kDeclined || reduction.scale == 1) return outcome;
  constexpr uint64_t kAtBegin[] = {0};
  const device::DeviceSpan place = {array.begin, array.size_bytes()};
  Status scaled = parts_.kernels->Launch(stream, kernels::PackWork{.tensors = {&place, 1},
                                                                   .offsets = kAtBegin,
                                                                   .buffer = place,
                                                                   .type = values.type,
                                                                   .scale = reduction.scale});
  if (!scaled) return Fail(GiveUp(std::move(scaled).error()));
  return outcome;
}

Result<CallOutcome> LibraryCollectives::Broadcast(const CallTag& tag, const DeviceValues& values,
                                                  int root, DeviceStream& stream) {
  LMDBIO_TRY_VOID(CheckInside(values, arena()));
  const device::DeviceSpan place = {ResultOf(values), values.size_bytes()};
  LibraryCall call;
  if (place.size_bytes > 0) {
    call = [place, root](BlockingLibrary& library) { return library.Broadcast(place, root); };
  }
  return Run({DigestOfBroadcast(tag, values, root), tag.is_declined}, std::move(call), stream);
}

// Meetings of one host know the name of the rank.
Error LibraryCollectives::GiveUp(Error why) {
  parts_.meetings.Stop(is_one_host_ ? why.Copy() : NamedFailure(parts_.meetings.rank(), why));
  return why;
}

Result<CallOutcome> LibraryCollectives::Run(const CallTag& tag, LibraryCall call,
                                            DeviceStream& stream) {
  Result<CallOutcome> outcome = RunSteps(tag, std::move(call), stream);
  if (!outcome) return Fail(GiveUp(std::move(outcome).error()));
  return outcome;
}

// A second meeting is not needed: no stream waits for another rank.
Result<CallOutcome> LibraryCollectives::RunSteps(const CallTag& tag, LibraryCall call,
                                                 DeviceStream& stream) {
  LMDBIO_TRY_VOID(stream.Record(ready_));
  LMDBIO_TRY_VOID(AwaitEvent(ready_, Clock::time_point::max(), parts_.check));
  LMDBIO_TRY(const CallOutcome agreed, parts_.meetings.Barrier(tag));
  if (agreed == CallOutcome::kDeclined || !call) return agreed;
  LMDBIO_TRY_VOID(CallLibrary(std::move(call)));
  return agreed;
}

// The library may see the end of a rank before the health does, which knows the name.
Status LibraryCollectives::CallLibrary(LibraryCall call) {
  const auto in_context = [library = parts_.library, context = parts_.gpu.context(),
                           call = std::move(call)]() -> Status {
    Status done;
    LMDBIO_TRY_VOID(context->Try(library->name(), [&](const device::DriverTable&) {
      done = call(*library);
      return device::driver_code::kSuccess;
    }));
    return done;
  };
  Status done = thread_.Run(in_context, parts_.check);
  if (done || done.error().code() == ErrorCode::kPeerFailed) return done;
  const auto is_known = [] { return false; };
  LMDBIO_TRY_VOID(LookUntil(is_known, Clock::now() + ranks::kReasonLimit, parts_.check));
  return done;
}

std::shared_ptr<const ResultState> LibraryCollectives::result_state() const {
  return std::make_shared<NeverVoid>();
}

Status LibraryCollectives::LeaveInPeace() {
  LMDBIO_TRY(const CallOutcome met,
             parts_.meetings.Barrier({TextDigest("leave a library"), false}));
  if (met == CallOutcome::kDeclined) {
    return Fail(ErrorCode::kPeerFailed, "another rank makes another call, and does not leave");
  }
  has_left_ = true;
  return {};
}

std::string LibraryCollectives::Description() const {
  return fmt::format("reductions by {}: {} ranks; arenas of {} bytes; through the host: {}",
                     parts_.library->name(), parts_.meetings.size(), arena().size_bytes,
                     parts_.library->refused_values());
}

}  // namespace lmdbio::sync
