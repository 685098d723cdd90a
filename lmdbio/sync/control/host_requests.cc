#include "lmdbio/sync/control/host_requests.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {

// The other ranks count as joined from the beginning. So an entry is ready when the own ranks that
// have not joined have requested it.
HostRequests::HostRequests(int rank_count, const std::vector<int>& own_ranks)
    : rank_count_(rank_count), outside_(rank_count), joined_(rank_count) {
  RankSet inside(rank_count);
  for (const int rank : own_ranks) inside.Add(rank);
  for (const int rank : inside.MissingBeside(RankSet(rank_count))) outside_.Add(rank);
  joined_ = outside_;
}

Status HostRequests::Add(RequestEntry ask) {
  if (ask.request.operation == Operation::kJoin) {
    // A join goes to rank 0 at once. It may complete tensors that the other ranks have requested.
    for (const int32_t rank : ask.ranks) {
      if (!joined_.Add(rank)) {
        return Fail(ErrorCode::kInternal, fmt::format("rank {} joins twice", rank));
      }
    }
    joins_.push_back(std::move(ask));
    return {};
  }
  auto found = by_name_.find(ask.request.name);
  if (found == by_name_.end()) {
    entries_.push_back({{}, RankSet(rank_count_)});
    found = by_name_.emplace(ask.request.name, std::prev(entries_.end())).first;
  }
  MergedRequest& entry = *found->second;
  for (const int32_t rank : ask.ranks) {
    if (!entry.ranks.Add(rank)) {
      return Fail(ErrorCode::kInternal,
                  fmt::format("rank {} requests tensor '{}' twice", rank, ask.request.name));
    }
  }
  for (RequestEntry& known : entry.asks) {
    if (known.group_digest != ask.group_digest || known.request != ask.request) continue;
    known.ranks.insert(known.ranks.end(), ask.ranks.begin(), ask.ranks.end());
    // The decoder refuses ranks that do not ascend.
    std::ranges::sort(known.ranks);
    return {};
  }
  entry.asks.push_back(std::move(ask));
  return {};
}

// The tensors of a group are forwarded together, so rank 0 still gets them in one message. The scan
// of all entries costs little, because it happens for stalled tensors only.
void HostRequests::Forward(std::string_view name) {
  const auto found = by_name_.find(std::string(name));
  if (found == by_name_.end()) return;
  const std::string group = found->second->asks.front().request.group;
  for (const MergedRequest& entry : entries_) {
    const Request& request = entry.asks.front().request;
    if (request.name == name || (!group.empty() && request.group == group)) {
      forwarded_.insert(request.name);
    }
  }
}

bool HostRequests::IsReady(const MergedRequest& entry) const {
  return entry.ranks.IsAllWith(joined_) || forwarded_.contains(entry.asks.front().request.name);
}

// Takes the entries that all own ranks have requested or that are forwarded, and all joins. An
// entry that is taken leaves the table, so later requests of its name form a new entry; rank 0
// unites the two.
std::vector<RequestEntry> HostRequests::TakeReady() {
  std::vector<RequestEntry> ready;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    if (!IsReady(*entry)) {
      ++entry;
      continue;
    }
    by_name_.erase(entry->asks.front().request.name);
    std::ranges::move(entry->asks, std::back_inserter(ready));
    entry = entries_.erase(entry);
  }
  std::ranges::move(joins_, std::back_inserter(ready));
  joins_.clear();
  return ready;
}

void HostRequests::Answered(const Response& response) {
  for (const Request& tensor : response.tensors) {
    forwarded_.erase(tensor.name);
    // Rank 0 answers the joins when all ranks have joined. From then on every rank may submit
    // again.
    if (tensor.operation == Operation::kJoin) joined_ = outside_;
  }
}

void HostRequests::Clear() {
  joined_ = outside_;
  joins_.clear();
  entries_.clear();
  by_name_.clear();
  forwarded_.clear();
}

}  // namespace lmdbio::sync
