// lmdbio/sync/over_device/value_places.h - the places at which ranks have their values in a call.
// The ranks tell each other in memory that they share.
//
// Source: docs/device_collectives.md "Interfaces".
#ifndef LMDBIO_SYNC_OVER_DEVICE_VALUE_PLACES_H_
#define LMDBIO_SYNC_OVER_DEVICE_VALUE_PLACES_H_

#include <cstdint>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/shm/shared_memory.h"

namespace lmdbio::sync {

// A rank publishes its offset before it meets the others, and they read it until the next meeting.
// Threads: one at a time
class ValuePlaces {
 public:
  // Collective over `group`, whose ranks share memory.
  // Errors: as ranks::Group::AllocateShared
  static Result<ValuePlaces> Make(ranks::Group& group);

  // offset  of the values in the arena of this rank
  void Publish(uint64_t offset);
  // Requires: this rank has met `rank` since that rank published it
  uint64_t OffsetOf(int rank) const;

 private:
  ValuePlaces(int rank, std::unique_ptr<ranks::SharedMemory> memory)
      : rank_(rank), memory_(std::move(memory)) {}

  int rank_;
  std::unique_ptr<ranks::SharedMemory> memory_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_VALUE_PLACES_H_
