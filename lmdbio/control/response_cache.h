// lmdbio/control/response_cache.h - responses that were negotiated once and hold until a rank wants
// something else.
//
// An entry is one tensor, or all of a group, and has a position: a bit of the words that ranks
// intersect. What is put, used and evicted, and when, follows from what all ranks have agreed on,
// so the caches of all ranks are the same.
//
// Everything but kBarrier, kJoin and kAdoptPlan can be here. The rows of kAllGather and kAllToAll
// differ between ranks; each rank compares its own part of them, so if it is a hit on every rank,
// all rows are still true.
//
// Source: Romero et al. 3.1.1; docs/coordinators.md "Response cache".
#ifndef LMDBIO_CONTROL_RESPONSE_CACHE_H_
#define LMDBIO_CONTROL_RESPONSE_CACHE_H_

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmdbio/control/request.h"

namespace lmdbio::control {

// Threads: one at a time.
class ResponseCache {
 public:
  using Position = uint32_t;

  // capacity  entries; 0: nothing is kept
  ResponseCache(uint32_t capacity, int rank) : capacity_(capacity), rank_(rank) {}

  // What is known of the tensors of a unit.
  struct Found {
    enum class Kind { kMiss, kHit, kInvalid };
    Kind kind = Kind::kMiss;
    std::vector<Position> positions;  // kHit: one; kInvalid: of all entries that hold one of these
                                      // names, and something else of it
  };
  Found Find(std::span<const Request> unit) const;

  // Keeps an entry at the lowest free position; evicts the one that has not been used for longest
  // if there is none, and entries that hold one of its names. No effect unless all of `unit` can
  // be kept.
  void Put(std::vector<Response> unit);

  // Requires: Has(position)
  const std::vector<Response>& At(Position position) const;
  // Used just now, on all ranks.
  void Touch(Position position);
  void Evict(Position position);

  bool Has(Position position) const;
  // Whether it holds for the others while `joined_rank`, which is this one, has joined and has not
  // asked for it.
  bool HoldsWithout(Position position, int joined_rank) const;

  // Positions that are or have been taken: how many bits the ranks intersect.
  uint32_t position_count() const { return static_cast<uint32_t>(entries_.size()); }
  // Changes whenever a Find could give another result.
  uint64_t version() const { return version_; }
  uint64_t evicted_count() const { return evicted_count_; }

 private:
  struct Entry {
    std::vector<Response> unit;  // empty: the position is free
    std::list<Position>::iterator use;
  };

  uint32_t capacity_;
  int rank_;
  std::vector<Entry> entries_;  // [positions]
  std::list<Position> uses_;    // the latest is the last
  struct Place {
    Position position = 0;
    size_t index = 0;  // in the unit
  };
  std::unordered_map<std::string, Place> by_name_;
  uint64_t version_ = 0;
  uint64_t evicted_count_ = 0;
};

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_RESPONSE_CACHE_H_
