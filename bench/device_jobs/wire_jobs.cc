// AllReduce of ranks that send messages: kernels of the GPU add, or the processor of the host.
#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include "bench/device_jobs/host_reduced_wire.h"
#include "bench/device_jobs/job_kinds.h"
#include "bench/device_jobs/memory_wire.h"
#include "bench/on_device/device_timer.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/over_device_wire/device_wire.h"
#include "lmdbio/sync/over_wire/link_wire.h"

namespace lmdbio::figures {
namespace {

// The same for both, and so small that the slots of DeviceWire hold all chunks of 4 ranks.
constexpr uint64_t kChunkBytes = uint64_t{512} << 10;
constexpr uint32_t kChunkDepth = 4;

// Threads of one job share it.
std::shared_ptr<MemoryExchange> SharedExchange(int rank_count) {
  static std::mutex mutex;
  static std::weak_ptr<MemoryExchange> last;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<MemoryExchange> shared = last.lock();
  if (shared == nullptr) last = shared = std::make_shared<MemoryExchange>(rank_count);
  return shared;
}

Result<std::unique_ptr<sync::Wire>> OpenWire(JobRank& rank, const std::string& link,
                                             ranks::Health& health) {
  if (link == "loopback") return sync::OpenLinkWire(rank.group(), health, {});
  auto wire =
      std::make_unique<MemoryWire>(SharedExchange(rank.group().size()), rank.group().rank());
  LMDBIO_TRY_VOID(rank.group().Barrier());  // all ranks have it, so none makes another one
  return wire;
}

Result<CallTimes> TimeWire(JobRank& rank, sync::BetweenHosts& between,
                           const device::DeviceMemory& memory, uint64_t size_bytes) {
  LMDBIO_TRY(device::DeviceEvent done, rank.device().MakeEvent(device::DeviceEventKind::kLocal));
  const sync::DeviceArray values = {memory.begin(), size_bytes / sizeof(float)};
  // Asleep between two looks, because the time of the processor counts.
  const auto once = [&]() -> Status {
    LMDBIO_TRY_VOID(between.AllReduce(values, sync::ReduceOp::kSum, rank.stream()));
    LMDBIO_TRY_VOID(rank.stream().Record(done));
    LMDBIO_TRY_VOID(sync::AwaitEvent(done, std::chrono::steady_clock::time_point::max()));
    return {};
  };
  LMDBIO_TRY(CallTimes times, rank.Time(once));
  LMDBIO_TRY_VOID(rank.Write(memory.begin(), size_bytes));
  LMDBIO_TRY_VOID(once());
  LMDBIO_TRY_VOID(rank.CheckSum(memory.begin(), size_bytes));
  return times;
}

}  // namespace

Status PlayWire(JobRank& rank) {
  std::istringstream words(rank.spec().variant);
  std::string algorithm;
  std::string link;
  std::string reducer;
  words >> algorithm >> link >> reducer;
  LMDBIO_TRY(const sync::WireAlgorithm by, sync::ParseWireAlgorithm(algorithm));
  const uint64_t size_bytes_max = std::ranges::max(rank.spec().sizes);
  ranks::SoloHealth health;
  LMDBIO_TRY(std::unique_ptr<sync::Wire> wire, OpenWire(rank, link, health));
  LMDBIO_TRY(const device::DeviceMemory memory, rank.device().Allocate(size_bytes_max));
  LMDBIO_TRY(const auto kernels, kernels::DeviceKernels::Load(rank.device()));
  std::unique_ptr<sync::BetweenHosts> between;
  if (reducer == "gpu") {
    LMDBIO_TRY(between, sync::DeviceWire::Make(
                            rank.group(), std::move(wire),
                            {rank.device(), *kernels, [&health] { return health.Check(); }},
                            {.table = sync::OneWireAlgorithm(by, kChunkBytes, kChunkDepth)}));
  } else {
    LMDBIO_TRY(between,
               HostReducedWire::Make(
                   rank.device(), std::move(wire),
                   {.algorithm = by, .chunk_bytes = kChunkBytes, .chunk_depth = kChunkDepth},
                   size_bytes_max));
  }
  for (const uint64_t size_bytes : rank.spec().sizes) {
    LMDBIO_TRY(const CallTimes times, TimeWire(rank, *between, memory, size_bytes));
    rank.SayTimes(reducer, size_bytes, times);
  }
  return rank.group().Barrier();
}

}  // namespace lmdbio::figures
