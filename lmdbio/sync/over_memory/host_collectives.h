// lmdbio/sync/over_memory/host_collectives.h - the collectives of ranks that share the memory of a
// host.
//
// No message, and no copy through the kernel. While no rank sleeps, no system call but sched_yield.
// Every algorithm reduces in the order of the ranks, so all algorithms give the same bits.
//
// Source: docs/collectives.md "Shared memory".
#ifndef LMDBIO_SYNC_OVER_MEMORY_HOST_COLLECTIVES_H_
#define LMDBIO_SYNC_OVER_MEMORY_HOST_COLLECTIVES_H_

#include <cstdint>
#include <memory>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/collectives.h"

namespace lmdbio::sync {

// How values are reduced.
enum class HostAlgorithm : uint8_t {
  kAuto,     // chosen by size and number of ranks
  kOneShot,  // every rank reduces all elements
  kTwoShot,  // every rank reduces its part, then copies the parts of the others
};

// The same on every rank.
struct HostOptions {
  WaitMode wait = WaitMode::kSleep;
  HostAlgorithm way = HostAlgorithm::kAuto;
  uint64_t staging_bytes = 1 << 20;  // shared memory of each rank for slots and buffers; a minimum
                                     // of some cache lines is used in any case
  uint64_t registered_bytes = 0;     // of each rank, for Collectives::registered
};

// Collective over `group`. Afterwards the group is not called any more, except by the release of
// its memory. If there is no room for registered memory, registered() is empty.
// Lifetime: `health` outlives the collectives. The destructor waits up to 5 s for those of the
//           other ranks. If they do not come, or a rank has failed, it abandons the memory
//           (ranks::SharedMemory::Abandon).
// Errors: kInvalidArgument    the ranks do not share memory, or have different options
//         kResourceExhausted  no shared memory
//         kInternal           MPI failed
Result<std::unique_ptr<Collectives>> HostCollectives(ranks::Group& group, ranks::Health& health,
                                                     const HostOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MEMORY_HOST_COLLECTIVES_H_
