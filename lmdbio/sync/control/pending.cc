#include "lmdbio/sync/control/pending.h"

#include <algorithm>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/base/digest.h"

namespace lmdbio::sync {
namespace {

// A digest of the tensor names, independent of their order; never 0.
uint64_t DigestOf(const std::vector<Request>& group) {
  std::vector<std::string_view> names;
  names.reserve(group.size());
  for (const Request& request : group) names.push_back(request.name);
  std::ranges::sort(names);
  uint64_t digest = TextDigest(group.front().group);
  for (const std::string_view name : names) digest = TextDigest(name, digest);
  return std::max<uint64_t>(digest, 1);
}

}  // namespace

// A request without a group is a unit at once. A request of a group is held until the group is
// complete; its unit then takes the position of the last of them. Nothing completes a group after a
// join, and rank 0 then needs the held requests, because it counts this rank as having requested
// everything.
void Pending::Submit(Request request) {
  LMDBIO_CHECK(!request.name.empty());
  if (request.operation == Operation::kJoin) {
    for (auto& [group, held] : held_) SubmitAlone(std::move(held));
    held_.clear();
  }
  if (request.group.empty()) {
    PendingUnit& unit = submitted_.emplace_back();
    unit.numbers.push_back(next_number_++);
    unit.requests.push_back(std::move(request));
    return;
  }
  const std::string group = request.group;
  PendingUnit& held = held_[group];
  held.numbers.push_back(next_number_++);
  held.requests.push_back(std::move(request));
  if (held.requests.size() < held.requests.front().group_size) return;
  held.group_digest = DigestOf(held.requests);
  submitted_.push_back(std::move(held));
  held_.erase(group);
}

void Pending::Open() {
  for (PendingUnit& unit : submitted_) AddUnit(std::move(unit));
  submitted_.clear();
}

bool Pending::ReleaseHeld(const std::string& group) {
  const auto found = held_.find(group);
  if (found == held_.end()) return false;
  SubmitAlone(std::move(found->second));
  held_.erase(found);
  return true;
}

void Pending::SubmitAlone(PendingUnit held) {
  for (size_t i = 0; i < held.requests.size(); ++i) {
    PendingUnit& unit = submitted_.emplace_back();
    LeaveGroup(held.requests[i]);
    unit.numbers.push_back(held.numbers[i]);
    unit.requests.push_back(std::move(held.requests[i]));
  }
}

// A name occurs in one unit only. Joins are not found by name, because one response answers all of
// them.
void Pending::AddUnit(PendingUnit unit) {
  units_.push_back(std::move(unit));
  const auto added = std::prev(units_.end());
  for (const Request& request : added->requests) {
    if (request.operation == Operation::kJoin) {
      ++join_count_;
    } else {
      LMDBIO_CHECK(by_name_.emplace(request.name, added).second);
    }
  }
}

const PendingUnit* Pending::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &*found->second;
}

// A unit with a cache position is not sent: a bit in the intersection stands for it.
std::vector<RequestEntry> Pending::TakeUnsent(int rank) {
  std::vector<RequestEntry> asks;
  for (PendingUnit& unit : units_) {
    if (unit.is_sent || unit.position >= 0) continue;
    unit.is_sent = true;
    for (const Request& request : unit.requests) {
      asks.push_back({request, {rank}, unit.group_digest});
    }
  }
  return asks;
}

// A response may name a tensor that this rank has not submitted, because the rank has joined.
void Pending::Answered(const Response& response) {
  for (const Request& tensor : response.tensors) {
    if (tensor.operation == Operation::kJoin) {
      std::erase_if(units_, [](const PendingUnit& unit) {
        return unit.requests.front().operation == Operation::kJoin;
      });
      join_count_ = 0;
    } else if (const auto found = by_name_.find(tensor.name); found != by_name_.end()) {
      const auto unit = found->second;
      by_name_.erase(found);
      EraseFrom(unit, tensor.name);
    }
  }
}

void Pending::EraseFrom(std::list<PendingUnit>::iterator unit, const std::string& name) {
  const auto place = std::ranges::find(unit->requests, name, &Request::name);
  unit->numbers.erase(unit->numbers.begin() + (place - unit->requests.begin()));
  unit->requests.erase(place);
  if (unit->requests.empty()) units_.erase(unit);
}

// A group becomes a unit with its last tensor, so the units are not in the order of submission. The
// numbers restore that order.
std::vector<Request> Pending::TakeAll() {
  std::vector<std::pair<uint64_t, Request>> all;
  const auto take = [&all](PendingUnit& unit) {
    for (size_t i = 0; i < unit.requests.size(); ++i) {
      all.emplace_back(unit.numbers[i], std::move(unit.requests[i]));
    }
  };
  for (PendingUnit& unit : units_) {
    // If only a part of a group was answered, ranks did not agree on it. The rest is a group.
    for (Request& request : unit.requests) {
      if (unit.group_digest != 0) request.group_size = static_cast<uint32_t>(unit.requests.size());
    }
    take(unit);
  }
  for (PendingUnit& unit : submitted_) take(unit);
  for (auto& [group, unit] : held_) take(unit);
  std::ranges::sort(all, {}, &std::pair<uint64_t, Request>::first);
  std::vector<Request> requests;
  requests.reserve(all.size());
  for (auto& [number, request] : all) requests.push_back(std::move(request));
  submitted_.clear();
  held_.clear();
  units_.clear();
  by_name_.clear();
  join_count_ = 0;
  return requests;
}

}  // namespace lmdbio::sync
