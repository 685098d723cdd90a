#include "lmdbio/sync/graph/grouping.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace lmdbio::sync {

// The name has the epoch of the plan. So a request that was cached with an older grouping differs.
Grouping::Grouping(const Plan& plan) {
  size_t number = 0;
  for (const Bucket& bucket : plan.buckets()) {
    std::vector<const Request*> members;
    for (const Request& tensor : bucket.tensors) {
      const bool may_join = tensor.operation == Operation::kAllReduce && tensor.group.empty();
      if (may_join) members.push_back(&tensor);
    }
    const size_t size = members.size() == bucket.tensors.size() ? members.size() : 1;
    size_min_ = size_min_ == 0 ? size : std::min(size_min_, size);
    if (members.size() < 2) continue;
    const Membership membership{fmt::format("{}{}.{}", kLearnedGroup, plan.epoch(), number++),
                                static_cast<uint32_t>(members.size())};
    for (const Request* const tensor : members) groups_.emplace(tensor->name, membership);
  }
}

void Grouping::Join(Request& request) const {
  if (request.operation != Operation::kAllReduce || !request.group.empty()) return;
  const auto found = groups_.find(request.name);
  if (found == groups_.end()) return;
  request.group = found->second.group;
  request.group_size = found->second.size;
}

bool Grouping::IsBrokenBy(const Response& response) const {
  return response.error.empty() &&
         std::ranges::any_of(response.tensors, [this](const Request& tensor) {
           return tensor.operation == Operation::kAllReduce && tensor.group.empty() &&
                  groups_.contains(tensor.name);
         });
}

}  // namespace lmdbio::sync
