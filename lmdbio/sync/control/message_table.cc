#include "lmdbio/sync/control/message_table.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/sync/request/request_checks.h"

namespace lmdbio::sync {
namespace {

// Adds `ask` to the entries of its name: its ranks to an equal entry, if there is one. If the ranks
// agree, there is one entry, and the loop makes one comparison.
void Unite(std::vector<RequestEntry>& asks, RequestEntry ask) {
  for (RequestEntry& known : asks) {
    if (known.group_digest != ask.group_digest || known.request != ask.request) continue;
    known.ranks.insert(known.ranks.end(), ask.ranks.begin(), ask.ranks.end());
    return;
  }
  asks.push_back(std::move(ask));
}

// Requests of a name arrive over several rounds, in any order of ranks. Sorted, the first entry is
// that of the lowest rank, so the response does not depend on timing.
void SortByRank(std::vector<RequestEntry>& asks) {
  for (RequestEntry& ask : asks) std::ranges::sort(ask.ranks);
  std::ranges::sort(asks, {}, [](const RequestEntry& ask) { return ask.ranks.front(); });
}

// A rank that has released a learned group requests its tensors alone. The others may still have
// requested the whole group. Then no rank has the tensor in the group.
void LeaveGroupsThatDiffer(std::vector<RequestEntry>& asks) {
  const auto may_leave = [](const RequestEntry& ask) {
    return ask.request.group.empty() || IsInLearnedGroup(ask.request);
  };
  const auto is_alike = [&](const RequestEntry& ask) {
    return ask.request.group == asks.front().request.group &&
           ask.group_digest == asks.front().group_digest;
  };
  if (std::ranges::all_of(asks, is_alike) || !std::ranges::all_of(asks, may_leave)) return;
  for (RequestEntry& ask : std::exchange(asks, {})) {
    LeaveGroup(ask.request);
    ask.group_digest = 0;
    Unite(asks, std::move(ask));
  }
}

// The rows that each rank contributes (kAllGather), or sends to each rank (kAllToAll).
std::vector<int64_t> RowsOf(const std::vector<RequestEntry>& asks, int rank_count) {
  const auto ranks = static_cast<size_t>(rank_count);
  const Operation operation = asks.front().request.operation;
  std::vector<int64_t> rows;
  if (operation == Operation::kAllGather) {
    rows.assign(ranks, 0);
    for (const RequestEntry& ask : asks) {
      for (const int32_t rank : ask.ranks) {
        rows[static_cast<size_t>(rank)] = FirstDimension(ask.request);
      }
    }
  } else if (operation == Operation::kAllToAll) {
    rows.assign(ranks * ranks, 0);
    for (const RequestEntry& ask : asks) {
      for (const int32_t rank : ask.ranks) {
        std::ranges::copy(ask.request.splits,
                          rows.begin() + static_cast<ptrdiff_t>(rank) * rank_count);
      }
    }
  }
  return rows;
}

}  // namespace

MessageTable::MessageTable(int rank_count, MergeExtra merge)
    : rank_count_(rank_count), merge_(std::move(merge)), joined_(rank_count) {}

// An entry is complete when its last rank is added, so the order of `ready_` is that of completion.
// Joined ranks are not added to entries; TakeReady accounts for them. A request costs one look-up.
// No entry is scanned until a rank has joined.
Status MessageTable::Add(RequestEntry ask) {
  if (ask.request.operation == Operation::kJoin) return Join(ask);
  auto found = by_name_.find(ask.request.name);
  if (found == by_name_.end()) {
    entries_.push_back({ask.request.name, {}, RankSet(rank_count_)});
    found = by_name_.emplace(ask.request.name, std::prev(entries_.end())).first;
  }
  TableEntry& entry = *found->second;
  for (const int32_t rank : ask.ranks) {
    if (!entry.ranks.Add(rank)) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("rank {} requests tensor '{}' twice", rank, entry.name));
    }
  }
  Unite(entry.asks, std::move(ask));
  if (entry.ranks.count() == rank_count_) ready_.push_back(found->second);
  return {};
}

// A join that no rank can make is no error of a tensor. So it fails here, and not in the decoders
// of all ranks, which would blame rank 0.
Status MessageTable::Join(const RequestEntry& ask) {
  if (const std::string wrong = WhatIsWrong(ask.request, rank_count_); !wrong.empty()) {
    return Fail(ErrorCode::kInternal,
                fmt::format("{}: an invalid join: {}", NamesOf(ask.ranks), wrong));
  }
  for (const int32_t rank : ask.ranks) {
    if (!joined_.Add(rank)) {
      return Fail(ErrorCode::kInternal, fmt::format("rank {} joins twice", rank));
    }
    // If several ranks join in one round, the highest counts as the last.
    last_joined_ = has_new_join_ ? std::max(last_joined_, rank) : rank;
    has_new_join_ = true;
  }
  joins_.push_back(ask);
  return {};
}

bool MessageTable::IsReady(const TableEntry& entry) const { return entry.ranks.IsAllWith(joined_); }

// Answers the complete entries. If ranks have joined, an entry is also complete when every other
// rank has requested it. When all ranks have joined, the joins are answered and the set is cleared,
// so that ranks can submit again.
std::vector<Response> MessageTable::TakeReady() {
  if (joined_.count() > 0) {
    // Entries that all ranks have requested are already in `ready_`.
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->ranks.count() < rank_count_ && IsReady(*entry)) ready_.push_back(entry);
    }
  }
  // A rank requests all tensors of a group in one message. So if all ranks agree on a group, its
  // tensors become ready consecutively.
  std::vector<Response> responses;
  // Iterators of a list stay valid while other entries are erased.
  for (const Entries::iterator entry : ready_) {
    by_name_.erase(entry->name);
    responses.push_back(Answer(std::move(*entry)));
    entries_.erase(entry);
  }
  ready_.clear();
  has_new_join_ = false;
  if (joined_.count() == rank_count_) {
    SortByRank(joins_);
    Response response;
    response.tensors.push_back(std::move(joins_.front().request));
    response.last_joined = last_joined_;
    responses.push_back(std::move(response));
    joins_.clear();
    joined_.Clear();
  }
  return responses;
}

// Checks each request alone, then all of them against each other, then against the joined ranks.
// The first reason becomes the error of the response, so that every rank fails with the same text.
// Each rank has checked its own request at its submission, but rank 0 does not trust bytes of a
// peer.
Response MessageTable::Answer(TableEntry entry) const {
  LeaveGroupsThatDiffer(entry.asks);
  SortByRank(entry.asks);
  std::string reason;
  for (const RequestEntry& ask : entry.asks) {
    const std::string wrong = WhatIsWrong(ask.request, rank_count_);
    if (!wrong.empty() && reason.empty()) reason = NamesOf(ask.ranks) + ": " + wrong;
  }
  if (reason.empty()) reason = WhatDiffers(entry.asks);
  for (int rank = 0; rank < rank_count_ && reason.empty() && joined_.count() > 0; ++rank) {
    if (entry.ranks.Has(rank)) continue;
    reason = WhyNotWithout(entry.asks.front().request, rank);
  }
  if (reason.empty()) return Merge(std::move(entry.asks));
  Response response;
  response.error = fmt::format("tensor '{}': {}", entry.name, reason);
  response.tensors.push_back(std::move(entry.asks.front().request));
  return response;
}

Response MessageTable::Merge(std::vector<RequestEntry> asks) const {
  Response response;
  response.rows = RowsOf(asks, rank_count_);
  if (asks.front().request.operation == Operation::kAdoptPlan) {
    auto merged = MergeExtras(asks);
    if (merged) {
      asks.front().request.extra = std::move(*merged);
    } else {
      response.error =
          fmt::format("tensor '{}': {}", asks.front().request.name, merged.error().message());
    }
  }
  response.tensors.push_back(std::move(asks.front().request));
  return response;
}

Result<std::vector<std::byte>> MessageTable::MergeExtras(
    const std::vector<RequestEntry>& asks) const {
  std::vector<std::byte> merged = asks.front().request.extra;
  // The merge of two proposals is commutative and associative, so every order of the ranks gives
  // the same plan.
  for (const RequestEntry& ask : std::span(asks).subspan(1)) {
    if (!merge_) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} and {} propose different plans", NamesOf(asks.front().ranks),
                              NamesOf(ask.ranks)));
    }
    auto both = merge_(merged, ask.request.extra);
    if (!both) return Fail(std::move(both).error().Within(NamesOf(ask.ranks)));
    merged = std::move(*both);
  }
  return merged;
}

std::vector<Stall> MessageTable::Stalls() const {
  std::vector<Stall> stalls;
  for (const TableEntry& entry : entries_) {
    stalls.push_back({entry.name, entry.ranks.MissingBeside(joined_)});
  }
  return stalls;
}

// The ranks take their requests back and send them again later, so the counts begin at 0.
void MessageTable::Clear() {
  by_name_.clear();
  ready_.clear();
  entries_.clear();
  joins_.clear();
  joined_.Clear();
  has_new_join_ = false;
  last_joined_ = -1;
}

}  // namespace lmdbio::sync
