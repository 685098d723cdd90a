// lmdbio/sync/control/message_table.h - at rank 0: the requests of all ranks, until they are
// complete.
//
// A rank that has joined counts as having requested everything, until all ranks have joined.
//
// Source: dissertation 6.2.2; Romero et al. 2.2.2; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_SYNC_CONTROL_MESSAGE_TABLE_H_
#define LMDBIO_SYNC_CONTROL_MESSAGE_TABLE_H_

#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/control/coordinator.h"
#include "lmdbio/sync/request/message_codec.h"
#include "lmdbio/sync/request/rank_set.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// Threads: one at a time.
class MessageTable {
 public:
  // merge  merges `extra` of two kAdoptPlan requests; empty: they must be equal
  MessageTable(int rank_count, MergeExtra merge);

  // Errors: kInternal  a rank repeats an unanswered request, joins a second time, or sends an
  //                    invalid join
  Status Add(RequestEntry ask);

  // The responses for the tensors that have become complete since the last call, in that order.
  // Tensors of one group are consecutive; joins come last. Requests that do not agree become a
  // response with an error.
  std::vector<Response> TakeReady();

  // The incomplete tensors, in the order of their first request.
  std::vector<Stall> Stalls() const;

  // Removes all entries.
  void Clear();

 private:
  struct TableEntry {
    std::string name;
    std::vector<RequestEntry> asks;  // different ones
    RankSet ranks;                   // of all asks
  };
  using Entries = std::list<TableEntry>;

  Status Join(const RequestEntry& ask);
  bool IsReady(const TableEntry& entry) const;
  Response Answer(TableEntry entry) const;
  Response Merge(std::vector<RequestEntry> asks) const;
  Result<std::vector<std::byte>> MergeExtras(const std::vector<RequestEntry>& asks) const;

  int rank_count_;
  MergeExtra merge_;
  Entries entries_;  // in the order of their first request
  std::unordered_map<std::string, Entries::iterator> by_name_;
  std::vector<Entries::iterator> ready_;
  std::vector<RequestEntry> joins_;
  RankSet joined_;
  bool has_new_join_ = false;
  int32_t last_joined_ = -1;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_MESSAGE_TABLE_H_
