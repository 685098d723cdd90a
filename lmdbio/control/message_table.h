// lmdbio/control/message_table.h - at rank 0: who has asked for what, and what all have asked for.
//
// A rank that has joined counts as having asked for everything, until all have joined.
//
// Source: dissertation 6.2.2; Romero et al. 2.2.2; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_CONTROL_MESSAGE_TABLE_H_
#define LMDBIO_CONTROL_MESSAGE_TABLE_H_

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/control/codec.h"
#include "lmdbio/control/coordinator.h"
#include "lmdbio/control/rank_set.h"
#include "lmdbio/control/request.h"

namespace lmdbio::control {

// Threads: one at a time.
class MessageTable {
 public:
  // merge  how `extra` of two kAdoptPlan becomes one; empty: they must be equal
  MessageTable(int rank_count, MergeExtra merge);

  // Errors: kInternal  a rank asks for what it has asked for already, or joins a second time
  Status Add(Ask ask);

  // What all ranks have asked for since the last call, in the order in which it became so; tensors
  // of one group stand together, joins last. Requests that do not fit together become a response
  // with an error.
  std::vector<Response> TakeReady();

  // What some have asked for and others have not, in the order in which it was first asked for.
  std::vector<Stall> Stalls() const;

  // Forgets everything.
  void Clear();

 private:
  struct Entry {
    std::string name;
    std::vector<Ask> asks;  // different ones
    RankSet ranks;          // of all asks
  };
  using Entries = std::list<Entry>;

  Status Join(const Ask& ask);
  bool IsReady(const Entry& entry) const;
  Response Answer(Entry entry) const;
  Response Merge(std::vector<Ask> asks) const;
  Result<std::vector<std::byte>> MergeExtras(const std::vector<Ask>& asks) const;

  int rank_count_;
  MergeExtra merge_;
  Entries entries_;  // in the order in which they were first asked for
  std::unordered_map<std::string, Entries::iterator> by_name_;
  std::vector<Entries::iterator> ready_;
  std::vector<Ask> joins_;
  RankSet joined_;
  bool has_new_join_ = false;
  int32_t last_joined_ = -1;
};

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_MESSAGE_TABLE_H_
