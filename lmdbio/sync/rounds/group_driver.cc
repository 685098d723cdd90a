#include "lmdbio/sync/rounds/group_driver.h"

#include <algorithm>
#include <utility>

#include "lmdbio/ranks/health/health.h"

namespace lmdbio::sync {

GroupDriver::GroupDriver(Coordinator& coordinator, GroupPatience patience)
    : coordinator_(coordinator), patience_(std::move(patience)), last_look_(Clock::now()) {}

// The coordinator holds the tensors of a group, and releases all of them when this rank joins. The
// counts here follow it.
void GroupDriver::Submit(Request request) {
  if (grouping_) grouping_->Join(request);
  if (request.operation == Operation::kJoin) incomplete_.clear();
  if (IsInLearnedGroup(request)) {
    IncompleteGroup& group =
        incomplete_.try_emplace(request.group, IncompleteGroup{request.group_size, {}})
            .first->second;
    group.since = Clock::now();
    if (--group.missing_count == 0) incomplete_.erase(request.group);
  }
  coordinator_.Submit(std::move(request));
}

void GroupDriver::Follow(const Plan& plan) {
  grouping_.emplace(plan);
  SubmitAgain();
}

bool GroupDriver::TakeDone(const std::vector<Response>& responses) {
  const bool is_broken = std::ranges::any_of(
      responses, [this](const Response& response) { return grouping_->IsBrokenBy(response); });
  if (!is_broken) return false;
  grouping_.reset();
  SubmitAgain();
  return true;
}

// A rank may have complete groups that wait for other ranks. It does not release those: the other
// rank is late, or will release its incomplete part of the group.
void GroupDriver::Look(Clock::time_point now) {
  const auto since_last_look = now - std::exchange(last_look_, now);
  if (incomplete_.empty()) return;
  const bool is_stuck =
      patience_.is_waited_for && patience_.is_waited_for() && !coordinator_.has_pending();
  const auto limit = (is_stuck ? 1 : kUnwaitedPatience) * patience_.patience;
  for (auto one = incomplete_.begin(); one != incomplete_.end();) {
    auto& [name, group] = *one;
    if (since_last_look > ranks::kLookMax) group.since += since_last_look;
    if (now - group.since <= limit) {
      ++one;
      continue;
    }
    static_cast<void>(coordinator_.ReleaseHeld(name));
    one = incomplete_.erase(one);
  }
}

// A submission that is not in the plan is seen when a thread waits for it.
size_t GroupDriver::missing_count() const {
  if (!grouping_) return 1;
  size_t count = std::max<size_t>(grouping_->size_min(), 1);
  for (const auto& [name, group] : incomplete_) count = std::min(count, group.missing_count);
  return count;
}

// Every rank takes its requests back after the same responses, so the requests of all ranks change
// at once.
void GroupDriver::SubmitAgain() {
  incomplete_.clear();
  for (Request& request : coordinator_.TakePending()) {
    if (IsInLearnedGroup(request)) LeaveGroup(request);
    Submit(std::move(request));
  }
}

}  // namespace lmdbio::sync
