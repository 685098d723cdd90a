#include "lmdbio/sync/over_nccl/nccl_collectives.h"

#include <chrono>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/device/device_event.h"
#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/over_device/rank_agreement.h"

namespace lmdbio::sync {
namespace {

using device::DeviceEvent;
using device::DeviceStream;

struct NcclFacts {
  GpuFacts gpu;
  int version = 0;
};

// Why NCCL cannot have these ranks, the same on every rank; "" if it can.
std::string ObstacleOfNccl(const std::vector<NcclFacts>& all) {
  std::vector<GpuFacts> gpus;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const NcclFacts& facts = all[rank];
    if (facts.version != all.front().version) {
      return fmt::format("rank 0 has NCCL {}, and rank {} has NCCL {}",
                         NcclVersionText(all.front().version), rank,
                         NcclVersionText(facts.version));
    }
    const std::string_view uuid = facts.gpu.uuid.data();
    for (size_t other = 0; other < rank; ++other) {
      if (uuid != gpus[other].uuid.data()) continue;
      return fmt::format("ranks {} and {} share {}, and NCCL needs a GPU for each rank", other,
                         rank, uuid);
    }
    gpus.push_back(facts.gpu);
  }
  return LackOfKernels(gpus);
}

}  // namespace

Result<std::unique_ptr<NcclCollectives>> NcclCollectives::Make(ranks::Group& group,
                                                               const NcclParts& parts,
                                                               uint64_t arena_bytes) {
  LMDBIO_TRY(const LoadedNccl nccl, ranks::ForAll(group, LoadNccl(parts.library)));
  LMDBIO_TRY(const std::vector<NcclFacts> all,
             GatherFacts(group, NcclFacts{FactsOf(parts.gpu, parts.kernels), nccl.version}));
  if (const std::string obstacle = ObstacleOfNccl(all); !obstacle.empty()) {
    return Fail(ErrorCode::kUnsupported, fmt::format("the ranks cannot use NCCL: {}", obstacle));
  }
  LMDBIO_TRY(device::DeviceMemory arena, ranks::ForAll(group, parts.gpu.Allocate(arena_bytes)));
  LMDBIO_TRY(DeviceEvent event,
             ranks::ForAll(group, parts.gpu.MakeEvent(device::DeviceEventKind::kLocal)));
  LMDBIO_TRY(std::shared_ptr<NcclComm> comm, NcclComm::Make(group, {.table = nccl.table,
                                                                    .context = parts.gpu.context(),
                                                                    .check = parts.check,
                                                                    .give_up = parts.give_up}));
  return std::unique_ptr<NcclCollectives>(new NcclCollectives(parts, nccl.version, std::move(arena),
                                                              std::move(event), std::move(comm)));
}

// Kernels of other ranks that go on may still use the memory of this one.
NcclCollectives::~NcclCollectives() {
  if (has_left_) return;
  comm_->Abort();
  if (parts_.meetings.size() > 1) KeepForever(std::move(arena_));
}

Result<CallOutcome> NcclCollectives::AllReduce(const CallTag& tag, const DeviceValues& values,
                                               const Reduction& reduction, DeviceStream& stream) {
  LMDBIO_TRY_VOID(kernels::PlanScale(values.type, reduction.scale));
  LMDBIO_TRY_VOID(CheckInside(values, arena()));
  const device::DeviceSpan place = {ResultOf(values), values.size_bytes()};
  const auto enqueue = [&]() -> Status {
    LMDBIO_TRY_VOID(
        comm_->AllReduce({place.begin, values.count, values.type}, reduction.op, stream));
    if (reduction.scale == 1) return {};
    constexpr uint64_t kAtBegin[] = {0};
    return parts_.kernels->Launch(stream, kernels::PackWork{.tensors = {&place, 1},
                                                            .offsets = kAtBegin,
                                                            .buffer = place,
                                                            .type = values.type,
                                                            .scale = reduction.scale});
  };
  return Run({DigestOfReduction(tag, values, reduction), tag.is_declined}, enqueue, stream);
}

Result<CallOutcome> NcclCollectives::Broadcast(const CallTag& tag, const DeviceValues& values,
                                               int root, DeviceStream& stream) {
  LMDBIO_TRY_VOID(CheckInside(values, arena()));
  const device::DeviceSpan place = {ResultOf(values), values.size_bytes()};
  return Run(
      {DigestOfBroadcast(tag, values, root), tag.is_declined},
      [&] { return comm_->Broadcast(place, root, stream); }, stream);
}

Result<CallOutcome> NcclCollectives::Run(const CallTag& tag, const std::function<Status()>& enqueue,
                                         DeviceStream& stream) {
  Result<CallOutcome> outcome = RunSteps(tag, enqueue, stream);
  if (!outcome) Poison();
  return outcome;
}

Result<CallOutcome> NcclCollectives::RunSteps(const CallTag& tag,
                                              const std::function<Status()>& enqueue,
                                              DeviceStream& stream) {
  // As in the order of the host: NCCL's kernels then wait for no work of a program.
  LMDBIO_TRY_VOID(stream.Record(ready_));
  LMDBIO_TRY_VOID(AwaitEvent(ready_, std::chrono::steady_clock::time_point::max(), parts_.check));
  LMDBIO_TRY(const CallOutcome agreed, parts_.meetings.Barrier(tag));
  if (agreed == CallOutcome::kDeclined) return agreed;
  LMDBIO_TRY_VOID(enqueue());
  LMDBIO_TRY(const CallOutcome enqueued, parts_.meetings.Barrier({tag.digest, false}));
  if (enqueued == CallOutcome::kDone) return enqueued;
  return Fail(ErrorCode::kInternal, "another rank has left a call that it had begun");
}

Status NcclCollectives::LeaveInPeace() {
  LMDBIO_TRY(const CallOutcome met, parts_.meetings.Barrier({TextDigest("leave NCCL"), false}));
  if (met == CallOutcome::kDeclined) {
    return Fail(ErrorCode::kPeerFailed, "another rank makes another call, and does not leave");
  }
  LMDBIO_TRY_VOID(comm_->Leave());
  has_left_ = true;
  return {};
}

std::string NcclCollectives::Description() const {
  return fmt::format("reductions by NCCL {}: {} ranks with a GPU each; arenas of {} bytes",
                     NcclVersionText(version_), parts_.meetings.size(), arena().size_bytes);
}

}  // namespace lmdbio::sync
