#include "lmdbio/sync/control/response_cache.h"

#include <algorithm>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/request/request_checks.h"

namespace lmdbio::sync {
namespace {

bool HasRowsOfItsOwn(Operation operation) {
  return operation == Operation::kAllGather || operation == Operation::kAllToAll;
}

// Whether `rank` still contributes the rows that the response assumes.
bool BringsItsRows(const Request& mine, const Response& cached, int rank) {
  const auto place = static_cast<size_t>(rank);
  if (mine.operation == Operation::kAllGather) {
    return place < cached.rows.size() && cached.rows[place] == FirstDimension(mine);
  }
  const size_t ranks = mine.splits.size();
  if (cached.rows.size() != ranks * ranks || place >= ranks) return false;
  return std::ranges::equal(mine.splits, std::span(cached.rows).subspan(place * ranks, ranks));
}

// A response with rows holds the request of the first rank. It is cached only if that is rank 0;
// after rank 0 has joined, it is another rank.
bool IsCacheable(const Response& response) {
  const Request& tensor = response.tensors.front();
  if (!response.error.empty() || response.tensors.size() != 1) return false;
  if (HasRowsOfItsOwn(tensor.operation)) return BringsItsRows(tensor, response, 0);
  return tensor.operation != Operation::kBarrier && tensor.operation != Operation::kJoin &&
         tensor.operation != Operation::kAdoptPlan;
}

// Whether the request of `rank` still agrees with the cached response. The first dimension and the
// splits differ from rank to rank. So they are compared with the agreed rows of this rank, and not
// with the request of rank 0.
bool IsSame(const Request& mine, const Response& cached, int rank) {
  const Request& tensor = cached.tensors.front();
  if (!HasRowsOfItsOwn(tensor.operation) || !HasRowsOfItsOwn(mine.operation)) {
    return mine == tensor;
  }
  if (mine.shape.size() != tensor.shape.size()) return false;
  Request expected = tensor;
  if (!mine.shape.empty()) expected.shape.front() = mine.shape.front();
  expected.splits = mine.splits;
  return mine == expected && BringsItsRows(mine, cached, rank);
}

}  // namespace

// A unit hits if it has exactly the tensors of one entry. If it shares only some names with
// entries, or its requests have changed, these entries are invalid. All ranks then evict them, so
// that ranks which still hit them send their requests to rank 0, too.
ResponseCache::CacheLookup ResponseCache::Find(std::span<const Request> unit) const {
  CacheLookup found;
  if (by_name_.empty()) return found;
  size_t same_count = 0;
  for (const Request& request : unit) {
    const auto place = by_name_.find(request.name);
    if (request.operation == Operation::kJoin || place == by_name_.end()) continue;
    const auto [position, index] = place->second;
    found.positions.push_back(position);
    if (IsSame(request, At(position)[index], rank_)) ++same_count;
  }
  if (found.positions.empty()) return found;
  std::ranges::sort(found.positions);
  // Not std::ranges::unique: clang 14 cannot compile that of GCC 12's library.
  found.positions.erase(std::unique(found.positions.begin(), found.positions.end()),
                        found.positions.end());
  const bool is_hit = found.positions.size() == 1 && same_count == unit.size() &&
                      At(found.positions.front()).size() == unit.size();
  found.kind = is_hit ? CacheLookup::LookupKind::kHit : CacheLookup::LookupKind::kInvalid;
  return found;
}

void ResponseCache::Put(std::vector<Response> unit) {
  if (capacity_ == 0 || unit.empty() || !std::ranges::all_of(unit, IsCacheable)) return;
  for (const Response& response : unit) {
    const auto known = by_name_.find(response.tensors.front().name);
    if (known != by_name_.end()) Evict(known->second.position);
  }
  // Victim and position follow from the agreed responses alone, so they are the same on every rank.
  // The lowest free position keeps the words of the intersection short.
  if (uses_.size() == capacity_) Evict(uses_.front());
  Position position = 0;
  while (position < entries_.size() && Has(position)) ++position;
  if (position == entries_.size()) entries_.emplace_back();
  for (size_t i = 0; i < unit.size(); ++i) by_name_[unit[i].tensors.front().name] = {position, i};
  entries_[position].unit = std::move(unit);
  entries_[position].use = uses_.insert(uses_.end(), position);
  ++version_;
}

const std::vector<Response>& ResponseCache::At(Position position) const {
  LMDBIO_CHECK(Has(position));
  return entries_[position].unit;
}

void ResponseCache::Touch(Position position) {
  LMDBIO_CHECK(Has(position));
  uses_.splice(uses_.end(), uses_, entries_[position].use);
}

void ResponseCache::Evict(Position position) {
  LMDBIO_CHECK(Has(position));
  for (const Response& response : entries_[position].unit) {
    by_name_.erase(response.tensors.front().name);
  }
  // The entries behind it keep their positions, because ranks know an entry by its position.
  entries_[position].unit.clear();
  uses_.erase(entries_[position].use);
  ++version_;
  ++evicted_count_;
}

bool ResponseCache::Has(Position position) const {
  return position < entries_.size() && !entries_[position].unit.empty();
}

// The agreed rows contain those of the joined rank, which contributes none from now on. So a
// response with rows is never valid without it.
bool ResponseCache::HoldsWithout(Position position, int joined_rank) const {
  return std::ranges::all_of(At(position), [joined_rank](const Response& response) {
    const Request& tensor = response.tensors.front();
    return !HasRowsOfItsOwn(tensor.operation) && WhyNotWithout(tensor, joined_rank).empty();
  });
}

}  // namespace lmdbio::sync
