// lmdbio/sync/over_memory/host_collectives.h - the collectives of ranks that share the memory of a
// host.
//
// No message, no copy through the kernel, and no system call but to yield while nobody sleeps. The
// reduction is
// made in the order of the ranks whatever the way, so all ways give the same bits.
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
  kAuto,     // by their size
  kOneShot,  // every rank reduces everything
  kTwoShot,  // every rank reduces its part, and all take the parts of all
};

// The same on every rank.
struct HostOptions {
  WaitMode wait = WaitMode::kSleep;
  HostAlgorithm way = HostAlgorithm::kAuto;
  uint64_t staging_bytes = 1 << 20;  // of shared memory for each rank; at least what 3 lines take
  uint64_t registered_bytes = 0;     // of each rank, for Collectives::registered
};

// Collective over `group`, of which nothing is called afterwards, but to give its memory back.
// Where there is no room for registered memory, there is none: registered() is empty.
// Lifetime: `health` outlives the collectives. The destructor waits some seconds for the others',
//           and if they do not come, or a rank has stopped, it abandons the memory
//           (ranks::SharedMemory::Abandon).
// Errors: kInvalidArgument    the ranks do not share memory, or have different options
//         kResourceExhausted  no shared memory
//         kInternal           MPI failed
Result<std::unique_ptr<Collectives>> HostCollectives(ranks::Group& group, ranks::Health& health,
                                                     const HostOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MEMORY_HOST_COLLECTIVES_H_
