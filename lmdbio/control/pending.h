// lmdbio/control/pending.h - what this rank has submitted and not got an answer to.
//
// Tensors of a group become known to others together: a group waits here until it is whole. So all
// ranks that agree on a group have asked for all of its tensors as soon as they have for one.
#ifndef LMDBIO_CONTROL_PENDING_H_
#define LMDBIO_CONTROL_PENDING_H_

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lmdbio/control/codec.h"
#include "lmdbio/control/request.h"

namespace lmdbio::control {

// One tensor, or all of a group.
struct PendingUnit {
  std::vector<Request> requests;
  std::vector<uint64_t> numbers;  // [requests] in the order of submission
  uint64_t group_digest = 0;      // 0: no group
  int64_t position = -1;          // in the response cache; -1: not there
  bool is_sent = false;           // to rank 0
};

// Threads: one at a time.
class Pending {
 public:
  // Requires: no request of the name is here; the name is not empty, the enumerations hold what
  //           they can
  void Submit(Request request);

  // A round begins: what has been submitted so far takes part in it.
  void Open();

  // Those that take part, oldest first.
  std::list<PendingUnit>& units() { return units_; }
  const PendingUnit* Find(const std::string& name) const;

  // The asks of those that have neither been sent nor have a position; they count as sent.
  std::vector<Ask> TakeUnsent(int rank);

  // All ranks have been told this: its tensors are done.
  void Answered(const Response& response);

  // Takes back everything, oldest first.
  std::vector<Request> TakeAll();

  bool is_empty() const { return units_.empty() && held_.empty() && submitted_.empty(); }
  // Whether a kJoin takes part.
  bool has_join() const { return join_count_ > 0; }

 private:
  void AddUnit(PendingUnit unit);
  void EraseFrom(std::list<PendingUnit>::iterator unit, const std::string& name);

  uint64_t next_number_ = 0;
  std::vector<std::pair<uint64_t, Request>> submitted_;  // since the round began
  std::unordered_map<std::string, PendingUnit> held_;    // groups that are not whole
  std::list<PendingUnit> units_;
  std::unordered_map<std::string, std::list<PendingUnit>::iterator> by_name_;
  int join_count_ = 0;
};

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_PENDING_H_
