// lmdbio/sync/graph/grouping.h - the buckets of a plan as tensor groups of a coordinator.
//
// A coordinator that exchanges messages follows no plan. It can still answer the tensors of a
// bucket together: they become one group, which is one entry of the response cache.
//
// Source: Romero et al. 3.2; docs/coordinators.md "Learned groups".
#ifndef LMDBIO_SYNC_GRAPH_GROUPING_H_
#define LMDBIO_SYNC_GRAPH_GROUPING_H_

#include <cstdint>
#include <string>
#include <unordered_map>

#include "lmdbio/sync/graph/plan.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// Pure: no thread, no clock, no message.
// Threads: one at a time.
class Grouping {
 public:
  // Groups the kAllReduce of each bucket. Tensors to which the program has given a group keep it.
  // A bucket of one tensor is no group.
  explicit Grouping(const Plan& plan);

  // Puts a request into the group of its name, if it is a kAllReduce without a group.
  void Join(Request& request) const;

  // Whether the response answers a tensor of a group without its group: some rank has released it.
  // The same on every rank, because responses are.
  bool IsBrokenBy(const Response& response) const;

  // Tensors that are in a group.
  size_t tensor_count() const { return groups_.size(); }
  // The fewest submissions that the coordinator can answer: the size of the smallest group, or 1 if
  // a tensor of the plan is in no group.
  size_t size_min() const { return size_min_; }

 private:
  struct Membership {
    std::string group;
    uint32_t size = 0;
  };
  std::unordered_map<std::string, Membership> groups_;  // by the name of the tensor
  size_t size_min_ = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_GROUPING_H_
