#include "lmdbio/sync/control/cache_coordinator.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

// A round of the cache coordinator has up to four exchanges:
//
//   hits       every rank sends a bit for each cache position that it wants, and the status bits
//              below. The intersection is the set of responses that all ranks want
//   invalid    the intersection of `kept_` gives the entries that all ranks keep; the others are
//              evicted. Skipped if no rank cleared kNothingInvalid
//   gather     the uncached requests go to rank 0. Skipped, with the broadcast, if no rank cleared
//              kNothingUncached or kNothingInvalid, and not all ranks have joined
//   broadcast  the answer of rank 0 goes to all ranks
//
// The status bits come first. A set bit means "nothing to report", so that the intersection of all
// words shows whether any rank has something to report.
constexpr size_t kNotEnding = 0;
constexpr size_t kNothingUncached = 1;
constexpr size_t kNothingInvalid = 2;
constexpr size_t kHasJoined = 3;  // set only if all ranks have
constexpr size_t kStatusBits = 4;

size_t WordsOf(size_t bits) { return (bits + 63) / 64; }
bool HasBit(const std::vector<uint64_t>& words, size_t bit) {
  return (words[bit / 64] >> (bit % 64) & 1) != 0;
}
void SetBit(std::vector<uint64_t>& words, size_t bit) {
  words[bit / 64] |= uint64_t{1} << (bit % 64);
}
void ClearBit(std::vector<uint64_t>& words, size_t bit) {
  words[bit / 64] &= ~(uint64_t{1} << (bit % 64));
}

// Checks that an intersection has as many words as this rank sent, and no additional bit. With an
// additional bit this rank would execute a response that it has not requested, or keep an entry
// that it wants evicted.
Status CheckIntersection(const std::vector<uint64_t>& sent, const std::vector<uint64_t>& words) {
  bool is_part = sent.size() == words.size();
  for (size_t i = 0; i < sent.size() && is_part; ++i) is_part = (words[i] & ~sent[i]) == 0;
  if (is_part) return {};
  return Fail(
      ErrorCode::kInternal,
      fmt::format("an intersection of {} words is not a subset of the {} words of this rank",
                  words.size(), sent.size()));
}

}  // namespace

Exchange CacheCoordinator::FirstExchange() {
  step_ = CacheStep::kHits;
  common_.clear();
  sent_words_ = HitWords();
  return {ExchangeKind::kIntersect, ExchangeScope::kAll, sent_words_, {}};
}

std::vector<uint64_t> CacheCoordinator::HitWords() {
  const size_t bits = cache_.position_count();
  kept_.assign(WordsOf(bits), ~uint64_t{0});
  // LookUp comes first: DropStalled and the loop below use the positions that it finds.
  const bool has_uncached = LookUp();
  DropStalled();
  std::vector<uint64_t> words(WordsOf(kStatusBits + bits), 0);
  for (const PendingUnit& unit : pending().units()) {
    if (unit.position >= 0) SetBit(words, kStatusBits + static_cast<size_t>(unit.position));
  }
  if (pending().has_join()) {
    SetBit(words, kHasJoined);
    MarkJoined();
    for (Position position = 0; position < bits; ++position) {
      if (cache_.Has(position) && HasBit(kept_, position)) SetBit(words, kStatusBits + position);
    }
  }
  if (!wants_end()) SetBit(words, kNotEnding);
  if (!has_uncached) SetBit(words, kNothingUncached);
  const bool has_invalid = std::ranges::any_of(kept_, [](uint64_t word) { return ~word != 0; });
  if (!has_invalid) SetBit(words, kNothingInvalid);
  return words;
}

bool CacheCoordinator::LookUp() {
  bool has_uncached = false;
  for (PendingUnit& unit : pending().units()) {
    // Rank 0 has the request of a sent unit, and answers it.
    if (unit.is_sent) continue;
    // A hit stays a hit until the cache changes. A miss goes to rank 0 in this round. So a round
    // looks up new units only, unless an entry was put or evicted.
    if (unit.position >= 0 && unit.cache_version == cache_.version()) continue;
    const ResponseCache::CacheLookup found = cache_.Find(unit.requests);
    const bool is_hit = found.kind == ResponseCache::CacheLookup::LookupKind::kHit;
    unit.position = is_hit ? int64_t{found.positions.front()} : -1;
    unit.cache_version = cache_.version();
    has_uncached = has_uncached || !is_hit;
    if (found.kind != ResponseCache::CacheLookup::LookupKind::kInvalid) continue;
    for (const Position position : found.positions) ClearBit(kept_, position);
  }
  return has_uncached;
}

// This rank has joined and brings zeros. Entries that are wrong under this condition must be
// evicted, unless this rank has requested them itself.
void CacheCoordinator::MarkJoined() {
  std::vector<uint64_t> asked(kept_.size(), 0);
  for (const PendingUnit& unit : pending().units()) {
    if (unit.position >= 0) SetBit(asked, static_cast<size_t>(unit.position));
  }
  for (Position position = 0; position < cache_.position_count(); ++position) {
    if (!cache_.Has(position) || HasBit(asked, position)) continue;
    if (!cache_.HoldsWithout(position, layout().rank())) ClearBit(kept_, position);
  }
}

void CacheCoordinator::DropStalled() {
  for (const std::string& name : TakeStalled()) {
    const PendingUnit* unit = pending().Find(name);
    if (unit != nullptr && unit->position >= 0) {
      ClearBit(kept_, static_cast<size_t>(unit->position));
    }
  }
}

Result<std::optional<Exchange>> CacheCoordinator::NextExchange(Reply reply) {
  const bool is_first = layout().rank() == 0;
  switch (step_) {
    case CacheStep::kHits:
      LMDBIO_TRY_VOID(CheckIntersection(sent_words_, reply.words));
      return AfterHits(reply.words);
    case CacheStep::kInvalid:
      LMDBIO_TRY_VOID(CheckIntersection(kept_, reply.words));
      for (Position position = 0; position < cache_.position_count(); ++position) {
        if (cache_.Has(position) && !HasBit(reply.words, position)) cache_.Evict(position);
      }
      std::erase_if(common_, [this](Position position) { return !cache_.Has(position); });
      return GatherUnsent();
    case CacheStep::kGather: {
      step_ = CacheStep::kBroadcast;
      Exchange broadcast{ExchangeKind::kBroadcast, ExchangeScope::kAll, {}, {}};
      if (is_first) {
        LMDBIO_TRY(answer_, negotiation_.Answer(reply, ExchangeScope::kAll, Speaker::kItself));
        broadcast.bytes = Encode(answer_);
      }
      return broadcast;
    }
    case CacheStep::kBroadcast:
      if (!is_first) {
        LMDBIO_TRY(answer_, Received(reply, 0));
      }
      // Every rank touches the hits first and then puts the negotiated responses. So all caches
      // choose the same least recently used entry to evict.
      DeliverHits();
      DeliverNegotiated(std::exchange(answer_, {}));
      return std::nullopt;
  }
  LMDBIO_CHECK(false);
}

std::optional<Exchange> CacheCoordinator::AfterHits(const std::vector<uint64_t>& words) {
  if (!HasBit(words, kNotEnding)) SetEnded();
  // A joined rank sets the bits of all valid entries, because it takes part in every response. If
  // all ranks have joined, no rank has requested them, so the hits have no meaning. The request of
  // the last rank to join goes to rank 0 in this round, together with the former hits.
  const bool all_joined = HasBit(words, kHasJoined);
  for (Position position = 0; position < cache_.position_count() && !all_joined; ++position) {
    if (HasBit(words, kStatusBits + position)) common_.push_back(position);
  }
  if (all_joined) {
    for (PendingUnit& unit : pending().units()) unit.position = -1;
  }
  if (!HasBit(words, kNothingInvalid)) {
    step_ = CacheStep::kInvalid;
    return Exchange{ExchangeKind::kIntersect, ExchangeScope::kAll, kept_, {}};
  }
  if (!HasBit(words, kNothingUncached) || all_joined) return GatherUnsent();
  DeliverHits();
  return std::nullopt;
}

Exchange CacheCoordinator::GatherUnsent() {
  step_ = CacheStep::kGather;
  for (PendingUnit& unit : pending().units()) {
    if (unit.position >= 0 && !cache_.Has(static_cast<Position>(unit.position))) unit.position = -1;
  }
  RequestList list;
  list.asks = pending().TakeUnsent(layout().rank());
  return {ExchangeKind::kGather, ExchangeScope::kAll, {}, Encode(list)};
}

void CacheCoordinator::DeliverHits() {
  for (const Position position : common_) {
    cache_.Touch(position);
    counts().cached_count += cache_.At(position).size();
    for (const Response& response : cache_.At(position)) Deliver(response);
  }
  counts().evicted_count = cache_.evicted_count();
}

void CacheCoordinator::DeliverNegotiated(ResponseList answer) {
  PutUnits(answer.responses);
  counts().negotiated_count += answer.responses.size();
  counts().evicted_count = cache_.evicted_count();
  for (Response& response : answer.responses) Deliver(std::move(response));
}

// Puts each negotiated unit into the cache. Rank 0 answers the tensors of a group consecutively, so
// a group is complete if `group_size` responses of that group follow each other.
void CacheCoordinator::PutUnits(const std::vector<Response>& responses) {
  for (size_t i = 0; i < responses.size();) {
    const Request& first = responses[i].tensors.front();
    const size_t size = first.group.empty() ? 1 : std::max<size_t>(first.group_size, 1);
    size_t count = 1;
    while (count < size && i + count < responses.size() &&
           responses[i + count].tensors.front().group == first.group) {
      ++count;
    }
    if (count == size)
      cache_.Put({responses.begin() + static_cast<ptrdiff_t>(i),
                  responses.begin() + static_cast<ptrdiff_t>(i + count)});
    i += count;
  }
}

void CacheCoordinator::ForgetCollected() { negotiation_.Clear(); }

}  // namespace lmdbio::sync
