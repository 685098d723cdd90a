// lmdbio/sync/control/pending.h - the unanswered requests of this rank.
//
// The tensors of a group are sent together: they are held here until the group is complete. So a
// rank that has requested one tensor of a group has requested all of them.
#ifndef LMDBIO_SYNC_CONTROL_PENDING_H_
#define LMDBIO_SYNC_CONTROL_PENDING_H_

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmdbio/sync/request/message_codec.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// One tensor, or all of a group.
struct PendingUnit {
  std::vector<Request> requests;
  std::vector<uint64_t> numbers;  // [requests] in the order of submission
  uint64_t group_digest = 0;      // 0: no group
  int64_t position = -1;          // in the response cache; -1: not cached
  uint64_t cache_version = 0;     // of the cache, when it was looked up
  bool is_sent = false;           // to rank 0
};

// Threads: one at a time.
class Pending {
 public:
  // Requires: no request of the name is pending; the name is not empty; the enumerations are valid
  void Submit(Request request);

  // Begins a round: the requests submitted so far take part in it, except those of incomplete
  // groups.
  void Open();

  // The units that take part, oldest first.
  std::list<PendingUnit>& units() { return units_; }
  const PendingUnit* Find(const std::string& name) const;

  // The requests of units that were not sent and have no cache position. They count as sent.
  std::vector<RequestEntry> TakeUnsent(int rank);

  // All ranks have got this response: removes its tensors.
  void Answered(const Response& response);

  // Takes back everything, oldest first.
  std::vector<Request> TakeAll();

  // Whether a request takes part in the present round or the next one.
  bool has_units() const { return !units_.empty() || !submitted_.empty(); }
  // The held requests of an incomplete group take part from the next round on, each alone.
  // Returns: whether there were any
  bool ReleaseHeld(const std::string& group);
  // Whether a kJoin takes part.
  bool has_join() const { return join_count_ > 0; }

 private:
  void AddUnit(PendingUnit unit);
  void SubmitAlone(PendingUnit held);
  void EraseFrom(std::list<PendingUnit>::iterator unit, const std::string& name);

  uint64_t next_number_ = 0;
  std::vector<PendingUnit> submitted_;                 // since the round began; groups are complete
  std::unordered_map<std::string, PendingUnit> held_;  // incomplete groups
  std::list<PendingUnit> units_;
  std::unordered_map<std::string, std::list<PendingUnit>::iterator> by_name_;
  int join_count_ = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_PENDING_H_
