#include "tests/sync/graph/plan_cases.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "tests/support/catch.h"

namespace lmdbio::sync::test {
namespace {

// `kinds` of them: float32, float64, another scale, then operations that are never fused.
Request RandomTensor(Random& random, const std::string& name, uint32_t kinds) {
  Request tensor = TensorOf(name, static_cast<int64_t>(random.Below(100)));
  switch (random.Below(kinds)) {
    case 1:
      tensor.type = DataType::kFloat64;
      break;
    case 2:
      tensor.postscale = 0.5;
      break;
    case 3:
      tensor.operation = Operation::kBroadcast;
      break;
    default:
      break;
  }
  return tensor;
}

}  // namespace

Request TensorOf(const std::string& name, int64_t count) {
  Request tensor;
  tensor.name = name;
  tensor.shape = {count};
  return tensor;
}

size_t RandomGraph::TensorNamed(const std::string& name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Request& tensor) { return tensor.name == name; });
  if (found == tensors.end()) FAIL("no tensor " << name);
  return static_cast<size_t>(found - tensors.begin());
}

RandomGraph MakeRandomGraph(Random& random, uint32_t node_count, uint32_t kinds) {
  RandomGraph made;
  made.parents.resize(node_count);
  made.depth.resize(node_count);
  made.level.resize(node_count);
  made.reaches.assign(node_count, std::vector<uint8_t>(node_count));
  const uint64_t tensor_share = random.Between(1, 4);
  for (uint32_t node = 0; node < node_count; ++node) {
    const bool is_tensor = random.Below(4) < tensor_share;
    made.tensor_of.push_back(is_tensor ? static_cast<int>(made.tensors.size()) : -1);
    if (is_tensor) {
      made.tensors.push_back(RandomTensor(random, fmt::format("t{}", node), kinds));
      made.node_of.push_back(node);
      made.graph.AddCollective(made.tensors.back());
    } else {
      made.graph.AddNode(fmt::format("n{}", node));
    }
  }
  // Edges ascend in a random order of the nodes, so that node numbers do not reveal dependencies.
  std::vector<uint32_t> order(node_count);
  for (uint32_t i = 0; i < node_count; ++i) order[i] = i;
  random.Shuffle(order);
  const uint64_t edges_max = random.Below(4);
  for (uint32_t i = 1; i < node_count; ++i) {
    const uint32_t node = order[i];
    for (uint64_t edge = random.Below(edges_max + 1); edge > 0; --edge) {
      const uint32_t parent = order[random.Below(i)];
      made.parents[node].push_back(parent);
      made.graph.AddEdge(parent, node);
      made.reaches[parent][node] = 1;
      for (uint32_t other = 0; other < node_count; ++other) {
        if (made.reaches[other][parent] != 0) made.reaches[other][node] = 1;
      }
      made.depth[node] = std::max(made.depth[node], made.depth[parent] + 1);
      const uint32_t own = made.tensor_of[parent] >= 0 ? 1 : 0;
      made.level[node] = std::max(made.level[node], made.level[parent] + own);
    }
  }
  return made;
}

Names NamesOf(const Plan& plan) {
  Names names;
  for (const Bucket& bucket : plan.buckets()) {
    names.emplace_back();
    for (const Request& tensor : bucket.tensors) names.back().push_back(tensor.name);
  }
  return names;
}

std::string ProblemOf(const Plan& plan, const RandomGraph& graph) {
  std::map<std::string, size_t> bucket_of;
  for (size_t bucket = 0; bucket < plan.buckets().size(); ++bucket) {
    const std::vector<Request>& tensors = plan.buckets()[bucket].tensors;
    if (tensors.empty()) return fmt::format("bucket {} is empty", bucket);
    for (const Request& tensor : tensors) {
      if (!bucket_of.emplace(tensor.name, bucket).second) return tensor.name + " comes twice";
      if (tensors.size() > 1 && !MayFuse(tensors[0], tensor)) return tensor.name + " is misplaced";
      if (graph.tensors[graph.TensorNamed(tensor.name)] != tensor) return tensor.name + " differs";
    }
  }
  if (bucket_of.size() != graph.tensors.size()) {
    return fmt::format("{} tensors of {}", bucket_of.size(), graph.tensors.size());
  }
  for (size_t a = 0; a < graph.tensors.size(); ++a) {
    for (size_t b = 0; b < graph.tensors.size(); ++b) {
      if (!graph.Needs(a, b)) continue;
      if (bucket_of[graph.tensors[b].name] < bucket_of[graph.tensors[a].name]) continue;
      return fmt::format("{} needs {}, which is not in a bucket before", graph.tensors[a].name,
                         graph.tensors[b].name);
    }
  }
  return "";
}

}  // namespace lmdbio::sync::test
