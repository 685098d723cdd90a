// lmdbio/sync/control/cache_coordinator.h - a cached response needs only one intersection of bits.
//
// Source: Romero et al. 3.1, Algorithms 1 and 2; Pumma et al. III-B; docs/coordinators.md
// "Coordinators".
#ifndef LMDBIO_SYNC_CONTROL_CACHE_COORDINATOR_H_
#define LMDBIO_SYNC_CONTROL_CACHE_COORDINATOR_H_

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <vector>

#include "lmdbio/sync/control/negotiation.h"
#include "lmdbio/sync/control/response_cache.h"
#include "lmdbio/sync/control/round_coordinator.h"

namespace lmdbio::sync {

// Threads: one at a time.
class CacheCoordinator final : public RoundCoordinator {
 public:
  CacheCoordinator(const RankTopology& layout, MergeExtra merge, uint32_t capacity)
      : RoundCoordinator(layout),
        cache_(capacity, layout.rank()),
        negotiation_(layout, std::move(merge)) {}

  std::vector<Stall> Stalls() const override { return negotiation_.Stalls(); }

 protected:
  Exchange FirstExchange() override;
  Result<std::optional<Exchange>> NextExchange(Reply reply) override;
  void ForgetCollected() override;

 private:
  // The exchange whose reply comes next.
  enum class CacheStep { kHits, kInvalid, kGather, kBroadcast };
  using Position = ResponseCache::Position;

  // Looks up the requests that have not been sent. Clears the bits in `kept_` of entries to evict.
  // Returns: whether a request is not in the cache
  bool LookUp();
  void MarkJoined();
  void DropStalled();
  std::vector<uint64_t> HitWords();

  std::optional<Exchange> AfterHits(const std::vector<uint64_t>& words);
  Exchange GatherUnsent();
  // Delivers the common hits, at the end of a round.
  void DeliverHits();
  void DeliverNegotiated(ResponseList answer);
  void PutUnits(const std::vector<Response>& responses);

  ResponseCache cache_;
  Negotiation negotiation_;  // at rank 0
  ResponseList answer_;      // at rank 0
  CacheStep step_ = CacheStep::kHits;
  std::vector<uint64_t> sent_words_;
  std::vector<uint64_t> kept_;    // a bit for each position: this rank does not request eviction
  std::vector<Position> common_;  // hits of all ranks, ascending
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_CACHE_COORDINATOR_H_
