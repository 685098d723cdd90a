// Goal: the buckets of a plan become groups that exactly their tensors join.
#include "lmdbio/sync/graph/grouping.h"

#include <string>
#include <vector>

#include "lmdbio/sync/graph/plan.h"
#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

OrderedTensor TensorOf(std::string name, Operation operation = Operation::kAllReduce) {
  OrderedTensor one;
  one.tensor.name = std::move(name);
  one.tensor.operation = operation;
  one.tensor.shape = {16};
  one.needs_up_to = -1;
  return one;
}

// One tensor for itself, a broadcast, and two groups of two tensors.
Plan PlanOf(uint64_t epoch) {
  PlanOptions options;
  options.num_groups = 3;
  options.group_by = PlanOptions::GroupBy::kTensors;
  return Plan::FromOrder({TensorOf("a"), TensorOf("root", Operation::kBroadcast), TensorOf("b"),
                          TensorOf("c"), TensorOf("d"), TensorOf("e")},
                         options, epoch);
}

Request Joined(const Grouping& grouping, Request request) {
  grouping.Join(request);
  return request;
}

TEST_CASE("Tensors join the group of their bucket", "[control][grouping]") {
  const Plan plan = PlanOf(1);
  const Grouping grouping(plan);
  size_t grouped_count = 0;
  for (const Bucket& bucket : plan.buckets()) {
    const Request first = Joined(grouping, bucket.tensors.front());
    for (const Request& tensor : bucket.tensors) {
      const Request joined = Joined(grouping, tensor);
      CHECK(joined.group == first.group);
      CHECK(IsInLearnedGroup(joined) == (bucket.tensors.size() > 1));
      CHECK(joined.group_size == (bucket.tensors.size() > 1 ? bucket.tensors.size() : 0));
      if (IsInLearnedGroup(joined)) ++grouped_count;
      Request left = joined;
      LeaveGroup(left);
      CHECK(left == tensor);
    }
  }
  CHECK(grouped_count == 4);
  CHECK(Joined(grouping, TensorOf("a").tensor) == TensorOf("a").tensor);
  CHECK(grouping.tensor_count() == 4);
  CHECK(Joined(grouping, TensorOf("d").tensor).group !=
        Joined(grouping, TensorOf("b").tensor).group);
  CHECK(Joined(Grouping(PlanOf(2)), TensorOf("b").tensor).group !=
        Joined(grouping, TensorOf("b").tensor).group);
}

TEST_CASE("Only an ungrouped kAllReduce of the plan joins a group", "[control][grouping]") {
  const Grouping grouping(PlanOf(1));
  CHECK(Joined(grouping, TensorOf("other").tensor) == TensorOf("other").tensor);
  const Request gathered = TensorOf("b", Operation::kAllGather).tensor;
  CHECK(Joined(grouping, gathered) == gathered);
  Request own = TensorOf("b").tensor;
  own.group = "of the program";
  own.group_size = 2;
  CHECK(Joined(grouping, own) == own);
  OrderedTensor first = TensorOf("a");
  OrderedTensor second = TensorOf("b");
  first.tensor.group = second.tensor.group = "of the program";
  CHECK(Grouping(Plan::FromOrder({first, second}, {}, 1)).tensor_count() == 0);
  const OrderedTensor root = TensorOf("root", Operation::kBroadcast);
  CHECK(Grouping(Plan::FromOrder({TensorOf("a"), TensorOf("b")}, {}, 1)).size_min() == 2);
  CHECK(Grouping(Plan::FromOrder({root, TensorOf("a"), TensorOf("b")}, {}, 1)).size_min() == 1);
}

TEST_CASE("A tensor that is answered alone breaks its group", "[control][grouping]") {
  const Grouping grouping(PlanOf(1));
  const auto breaks = [&](Request request, std::string error = "") {
    Response response;
    response.tensors.push_back(TensorOf("other").tensor);
    response.tensors.push_back(std::move(request));
    response.error = std::move(error);
    return grouping.IsBrokenBy(response);
  };
  CHECK(breaks(TensorOf("b").tensor));
  CHECK_FALSE(breaks(TensorOf("b").tensor, "the shapes differ"));
  CHECK_FALSE(breaks(Joined(grouping, TensorOf("b").tensor)));
  CHECK_FALSE(breaks(TensorOf("b", Operation::kBroadcast).tensor));
  CHECK_FALSE(breaks(TensorOf("another").tensor));
}

}  // namespace
}  // namespace lmdbio::sync
