#include "lmdbio/sync/rounds/group_driver.h"

#include <algorithm>
#include <utility>

namespace lmdbio::sync {

GroupDriver::GroupDriver(Coordinator& coordinator, GroupPatience patience)
    : coordinator_(coordinator), patience_(std::move(patience)), last_progress_(Clock::now()) {}

void GroupDriver::Submit(Request request) {
  if (grouping_) {
    grouping_->Join(request);
    last_progress_ = Clock::now();
  }
  coordinator_.Submit(std::move(request));
}

void GroupDriver::Follow(const Plan& plan) {
  grouping_.emplace(plan);
  last_progress_ = Clock::now();
  SubmitAgain();
}

bool GroupDriver::TakeDone(const std::vector<Response>& responses) {
  last_progress_ = Clock::now();
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
  if (!grouping_ || coordinator_.missing_count() == 0) return;
  const bool is_waited_for = patience_.is_waited_for && patience_.is_waited_for();
  const int times = is_waited_for ? 1 : kUnwaitedPatience;
  if (now - last_progress_ > times * patience_.patience)
    static_cast<void>(coordinator_.ReleaseHeld());
}

// A submission outside of the groups is seen when a thread waits for it.
size_t GroupDriver::missing_count() const {
  return grouping_ ? std::max<size_t>(coordinator_.missing_count(), 1) : 1;
}

// Every rank takes its requests back after the same responses, so the requests of all ranks change
// at once.
void GroupDriver::SubmitAgain() {
  for (Request& request : coordinator_.TakePending()) {
    if (IsInLearnedGroup(request)) LeaveGroup(request);
    if (grouping_) grouping_->Join(request);
    coordinator_.Submit(std::move(request));
  }
}

}  // namespace lmdbio::sync
