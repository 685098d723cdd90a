// lmdbio/sync/control/host_requests.h - at a host root: the requests of the ranks for which it
// speaks.
//
// These are the ranks of its host, and of the hosts below it in the tree of hosts. Equal requests
// become one entry with several ranks. Different requests stay separate, so that rank 0 sees the
// request of each rank. A rank that has joined counts as having requested everything.
//
// Source: Romero et al. 2.2.3; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_SYNC_CONTROL_HOST_REQUESTS_H_
#define LMDBIO_SYNC_CONTROL_HOST_REQUESTS_H_

#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/request/message_codec.h"
#include "lmdbio/sync/request/rank_set.h"

namespace lmdbio::sync {

// Threads: one at a time.
class HostRequests {
 public:
  // own_ranks  the ranks for which this root speaks
  HostRequests(int rank_count, const std::vector<int>& own_ranks);

  // Errors: kInternal  a rank repeats a request that is still in the table
  Status Add(RequestEntry ask);

  // From now on, until the answer, requests of this name and its group go to the next root at once.
  // Rank 0 uses this to learn the missing ranks of a stalled tensor.
  void Forward(std::string_view name);

  // The requests to send to the next root, in the order in which they were first made.
  std::vector<RequestEntry> TakeReady();

  // All ranks have got this response.
  void Answered(const Response& response);

  // Removes all entries.
  void Clear();

 private:
  struct MergedRequest {
    std::vector<RequestEntry> asks;
    RankSet ranks;
  };
  bool IsReady(const MergedRequest& entry) const;

  int rank_count_;
  RankSet outside_;  // ranks for which other roots speak
  RankSet joined_;   // ranks that need no request: `outside_`, and own ranks that have joined
  std::vector<RequestEntry> joins_;
  std::list<MergedRequest> entries_;
  std::unordered_map<std::string, std::list<MergedRequest>::iterator> by_name_;
  std::unordered_set<std::string> forwarded_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_CONTROL_HOST_REQUESTS_H_
