// lmdbio/sync/control/response_cache.h - responses that stay valid until a rank makes another
// request.
//
// An entry is one tensor, or all of a group. It has a position, which is the index of its bit in
// the words that ranks intersect. Entries are put, used and evicted only by agreed steps. So the
// caches of all ranks are equal, and a position means the same on every rank.
//
// Responses of kBarrier, kJoin and kAdoptPlan are not cached. The rows of kAllGather and kAllToAll
// differ between ranks. Each rank compares its own rows, so if all ranks have a hit, all rows are
// valid.
//
// Source: Romero et al. 3.1.1; docs/coordinators.md "Response cache".
#ifndef LMDBIO_SYNC_CONTROL_RESPONSE_CACHE_H_
#define LMDBIO_SYNC_CONTROL_RESPONSE_CACHE_H_

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// Threads: one at a time.
class ResponseCache {
 public:
  using Position = uint32_t;

  // capacity  entries; 0: nothing is kept
  ResponseCache(uint32_t capacity, int rank) : capacity_(capacity), rank_(rank) {}

  // The result of Find for a unit.
  struct CacheLookup {
    enum class LookupKind { kMiss, kHit, kInvalid };
    LookupKind kind = LookupKind::kMiss;
    std::vector<Position> positions;  // kHit: one; kInvalid: all entries with one of the names and
                                      // another request or unit
  };
  CacheLookup Find(std::span<const Request> unit) const;

  // Stores an entry at the lowest free position. First evicts entries with one of its names and, if
  // the cache is full, the least recently used entry. No effect unless all responses of `unit` can
  // be cached.
  void Put(std::vector<Response> unit);

  // Requires: Has(position)
  const std::vector<Response>& At(Position position) const;
  // Marks the entry as most recently used, on all ranks.
  void Touch(Position position);
  void Evict(Position position);

  bool Has(Position position) const;
  // Whether the entry is valid for the other ranks while `joined_rank`, which is this rank, has
  // joined and has not requested it.
  bool HoldsWithout(Position position, int joined_rank) const;

  // Number of positions that were ever used: the number of bits that the ranks intersect.
  uint32_t position_count() const { return static_cast<uint32_t>(entries_.size()); }
  // Changes when the result of Find may change.
  uint64_t version() const { return version_; }
  uint64_t evicted_count() const { return evicted_count_; }

 private:
  struct CacheEntry {
    std::vector<Response> unit;  // empty: the position is free
    std::list<Position>::iterator use;
  };

  uint32_t capacity_;
  int rank_;
  std::vector<CacheEntry> entries_;  // [positions]
  std::list<Position> uses_;         // least recently used first
  struct CachedPosition {
    Position position = 0;
    size_t index = 0;  // in the unit
  };
  std::unordered_map<std::string, CachedPosition> by_name_;
  uint64_t version_ = 0;
  uint64_t evicted_count_ = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_RESPONSE_CACHE_H_
