#include "lmdbio/sync/over_device/device_arena.h"

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/sync/over_device/rank_agreement.h"

namespace lmdbio::sync {

using device::DeviceMemory;
using device::MemoryTicket;

Result<DeviceArena> DeviceArena::Exchange(ranks::Group& group, device::Device& gpu,
                                          uint64_t size_bytes) {
  LMDBIO_TRY(DeviceMemory own, ForAllOrNone(group, gpu.Allocate(size_bytes)));
  DeviceArena arena(group.rank(), std::move(own));
  if (group.size() == 1) return arena;
  LMDBIO_TRY(const MemoryTicket ticket, ForAllOrNone(group, gpu.Share(arena.own_)));
  LMDBIO_TRY(const std::vector<MemoryTicket> tickets, GatherFacts(group, ticket));
  Status opened = AgreeOnSupport(group, arena.OpenOthers(gpu, tickets));
  if (opened) return arena;
  FreeTogether(std::move(arena), group);
  return Fail(std::move(opened).error());
}

Status DeviceArena::OpenOthers(device::Device& gpu, const std::vector<MemoryTicket>& tickets) {
  for (size_t rank = 0; rank < tickets.size(); ++rank) {
    if (static_cast<int>(rank) == rank_) continue;
    auto opened = gpu.Import(tickets[rank]);
    if (!opened) {
      return Fail(std::move(opened).error().Within(fmt::format("the memory of rank {}", rank)));
    }
    others_.push_back(*std::move(opened));
  }
  return {};
}

void DeviceArena::FreeTogether(DeviceArena arena, ranks::Group& group) {
  arena.CloseOthers();
  if (!group.Barrier()) KeepForever(std::move(arena));
}

}  // namespace lmdbio::sync
