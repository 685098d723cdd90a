// lmdbio/sync/rounds/group_driver.h - passes requests to the coordinator, in learned groups or
// alone.
//
// The ranks learn the groups as they learn a plan, and begin to use them after the same responses.
// If a tensor of a group does not come, its rank releases the group: it requests the tensors that
// it has alone. They are answered without the group, so all ranks end the groups after the same
// responses.
//
// Source: Romero et al. 3.2; docs/coordinators.md "Learned groups".
#ifndef LMDBIO_SYNC_ROUNDS_GROUP_DRIVER_H_
#define LMDBIO_SYNC_ROUNDS_GROUP_DRIVER_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/graph/grouping.h"
#include "lmdbio/sync/graph/plan.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// How long a rank waits for the tensors that an incomplete group lacks.
struct GroupPatience {
  std::chrono::milliseconds patience{1000};  // as SyncOptions::plan_patience
  // Whether a thread of the program waits for a tensor. Empty: no.
  std::function<bool()> is_waited_for;
};

// Threads: one at a time.
class GroupDriver {
 public:
  using Clock = std::chrono::steady_clock;
  // A rank releases a group after this many times the patience if no thread waits for a tensor, or
  // if the rank itself waits for another one: it may hold a part of the next group.
  static constexpr int kUnwaitedPatience = 10;

  // coordinator  must outlive this
  GroupDriver(Coordinator& coordinator, GroupPatience patience);

  bool is_following() const { return grouping_.has_value(); }

  // Passes a request of the program to the coordinator.
  void Submit(Request request);

  // Groups the buckets of this plan from now on, also in the requests without a response.
  // Collective: every rank calls it after the same responses
  void Follow(const Plan& plan);

  // Takes the responses of a round. After a response that breaks a group no group is followed.
  // Requires:   is_following
  // Collective: every rank calls it after the same responses
  // Returns:    whether the groups have ended
  bool TakeDone(const std::vector<Response>& responses);

  // Releases the incomplete groups of which no tensor has come for longer than the patience. Time
  // in which the thread was not running, because the job was stopped, does not count.
  void Look(Clock::time_point now);

  // The submissions after which the coordinator may need a round.
  size_t missing_count() const;

 private:
  void SubmitAgain();

  // A group of which some tensors were submitted.
  struct IncompleteGroup {
    size_t missing_count = 0;
    Clock::time_point since;  // the last of them came
  };

  Coordinator& coordinator_;
  GroupPatience patience_;
  std::optional<Grouping> grouping_;  // none: each request alone
  std::unordered_map<std::string, IncompleteGroup> incomplete_;
  Clock::time_point last_look_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ROUNDS_GROUP_DRIVER_H_
