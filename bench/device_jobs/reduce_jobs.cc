// AllReduce of values on a GPU: through a synchronizer, and by a way that does one thing after the
// other.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/device_jobs/job_kinds.h"
#include "bench/device_jobs/job_synchronizer.h"
#include "bench/on_device/device_timer.h"
#include "lmdbio/base/align.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/tiers/make_collectives.h"

namespace lmdbio::figures {
namespace {

using device::DeviceSpan;

// The values of one size, through a synchronizer of their own.
Result<CallTimes> ReduceOfSize(JobRank& rank, uint64_t size_bytes) {
  LMDBIO_TRY(auto job, JobSynchronizer::Create(rank, size_bytes));
  LMDBIO_TRY(const DeviceSpan values, job->synchronizer().PlaceOnDevice(size_bytes));
  const auto once = [&]() -> Status {
    LMDBIO_TRY(auto handle, job->Submit("values", values.begin, size_bytes));
    LMDBIO_TRY_VOID(handle.WaitOn(rank.stream().native()));
    return AwaitDone(rank.stream());
  };
  LMDBIO_TRY(CallTimes times, rank.Time(once));
  LMDBIO_TRY_VOID(rank.Write(values.begin, size_bytes));
  LMDBIO_TRY_VOID(once());
  LMDBIO_TRY_VOID(rank.CheckSum(values.begin, size_bytes));
  LMDBIO_TRY_VOID(job->CheckWay());
  LMDBIO_TRY_VOID(job->synchronizer().Shutdown());
  return times;
}

Result<CallTimes> SerialOfSize(JobRank& rank, uint64_t size_bytes) {
  const uint64_t pages = AlignUp(size_bytes, MemoryPageBytes());
  ranks::SoloHealth health;
  LMDBIO_TRY(const auto host,
             sync::MakeCollectives(rank.group(), health, {.registered_bytes = pages}));
  LMDBIO_TRY(const device::DeviceMemory memory, rank.device().Allocate(pages));
  if (host->registered().size() < pages) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("the host has no shared memory of {} bytes for each rank", pages));
  }
  LMDBIO_TRY(const device::PinnedBytes pinned, rank.device().Pin(host->registered().first(pages)));
  const sync::Values values = {.data = pinned.bytes().data(), .count = size_bytes / sizeof(float)};
  const auto once = [&]() -> Status {
    LMDBIO_TRY_VOID(rank.stream().CopyOut(pinned, 0, memory.begin(), size_bytes));
    LMDBIO_TRY_VOID(AwaitDone(rank.stream()));
    LMDBIO_TRY(const sync::CallOutcome outcome, host->AllReduce({}, values, sync::ReduceOp::kSum));
    if (outcome != sync::CallOutcome::kDone) return Fail(ErrorCode::kInternal, "declined");
    LMDBIO_TRY_VOID(rank.stream().CopyIn(memory.begin(), pinned, 0, size_bytes));
    return AwaitDone(rank.stream());
  };
  LMDBIO_TRY(CallTimes times, rank.Time(once));
  LMDBIO_TRY_VOID(rank.Write(memory.begin(), size_bytes));
  LMDBIO_TRY_VOID(once());
  LMDBIO_TRY_VOID(rank.CheckSum(memory.begin(), size_bytes));
  LMDBIO_TRY_VOID(rank.group().Barrier());
  return times;
}

// After an error the ranks are not in step, so the sizes that follow are missing, too.
Status PlaySizes(JobRank& rank, const std::string& what,
                 Result<CallTimes> (*play)(JobRank& rank, uint64_t size_bytes)) {
  for (const uint64_t size_bytes : rank.spec().sizes) {
    Result<CallTimes> times = play(rank, size_bytes);
    if (!times) return Fail(std::move(times).error().Within(MeasureOf(what, size_bytes)));
    rank.SayTimes(what, size_bytes, *times);
  }
  return {};
}

}  // namespace

Status PlayReduce(JobRank& rank) { return PlaySizes(rank, rank.spec().variant, &ReduceOfSize); }
Status PlaySerial(JobRank& rank) { return PlaySizes(rank, "serial", &SerialOfSize); }

}  // namespace lmdbio::figures
