// lmdbio/sync/over_device/device_arena.h - memory of a GPU that all ranks of a host map.
//
// Source: docs/device_collectives.md "Data flow".
#ifndef LMDBIO_SYNC_OVER_DEVICE_DEVICE_ARENA_H_
#define LMDBIO_SYNC_OVER_DEVICE_DEVICE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_memory.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::sync {

// The arena of this rank, and those of the others as this GPU sees them.
// Lifetime: no work of a stream uses an arena when it is destroyed. A rank destroys its own after
//           all others have called CloseOthers.
class DeviceArena {
 public:
  // Collective over `group`. Fills the memory with zeros.
  // size_bytes  [> 0; the same on every rank] of each arena
  // Errors, on every rank if on one:
  //   kUnsupported        a rank cannot map the memory of another one: names both, and the reason
  //   kResourceExhausted  no such memory on this rank's GPU; kPeerFailed on the others
  //   and as Device::Allocate, ranks::Group::AllGather
  static Result<DeviceArena> Exchange(ranks::Group& group, device::Device& gpu,
                                      uint64_t size_bytes);

  device::DeviceSpan own() const { return own_.span(); }
  // Requires: 0 <= rank < size of the group; not after CloseOthers, except for this rank
  device::DeviceSpan of(int rank) const {
    if (rank == rank_) return own();
    return others_[static_cast<size_t>(rank < rank_ ? rank : rank - 1)].span();
  }

  // Unmaps the arenas of the others.
  void CloseOthers() { others_.clear(); }

  // Collective over `group`. All ranks unmap the arenas of others, and then free their own. If they
  // cannot meet in between, the memory stays until the process ends.
  static void FreeTogether(DeviceArena arena, ranks::Group& group);

 private:
  DeviceArena(int rank, device::DeviceMemory own) : rank_(rank), own_(std::move(own)) {}

  // Errors: as Device::Import, with the number of the owner
  Status OpenOthers(device::Device& gpu, const std::vector<device::MemoryTicket>& tickets);

  int rank_;
  device::DeviceMemory own_;
  std::vector<device::DeviceMemory> others_;  // by rank
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_DEVICE_ARENA_H_
