// lmdbio/control/host_requests.h - at a host root: what all ranks of the host have asked for.
//
// Equal requests become one with several ranks; different ones stay apart, so that rank 0 sees who
// wants what. A rank of the host that has joined counts as having asked for everything.
//
// Source: Romero et al. 2.2.3; docs/coordinators.md "Coordinators".
#ifndef LMDBIO_CONTROL_HOST_REQUESTS_H_
#define LMDBIO_CONTROL_HOST_REQUESTS_H_

#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/control/codec.h"
#include "lmdbio/control/rank_set.h"

namespace lmdbio::control {

// Threads: one at a time.
class HostTable {
 public:
  // host_ranks  those of the host
  HostTable(int rank_count, const std::vector<int>& host_ranks);

  // Errors: kInternal  a rank asks for what it has asked for already, and that is still here
  Status Add(Ask ask);

  // From now on, until it is answered, this name, and with it its group, goes on at once: rank 0
  // wants to know who has asked for it.
  void Forward(std::string_view name);

  // What goes on to rank 0, in the order in which it was first asked for.
  std::vector<Ask> TakeReady();

  // All ranks have been told this.
  void Answered(const Response& response);

  // Forgets everything.
  void Clear();

 private:
  struct Entry {
    std::vector<Ask> asks;
    RankSet ranks;
  };
  bool IsReady(const Entry& entry) const;

  int rank_count_;
  RankSet outside_;  // ranks of other hosts
  RankSet joined_;   // ranks that need not ask: these, and those of the host that have joined
  std::vector<Ask> joins_;
  std::list<Entry> entries_;
  std::unordered_map<std::string, std::list<Entry>::iterator> by_name_;
  std::unordered_set<std::string> forwarded_;
};

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_HOST_REQUESTS_H_
