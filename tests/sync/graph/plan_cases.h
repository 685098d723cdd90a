// tests/sync/graph/plan_cases.h - random graphs and programs, and their expected properties.
#ifndef LMDBIO_TESTS_SYNC_GRAPH_PLAN_CASES_H_
#define LMDBIO_TESTS_SYNC_GRAPH_PLAN_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/sync/graph/graph.h"
#include "lmdbio/sync/graph/plan.h"
#include "lmdbio/sync/request/request.h"
#include "tests/support/random.h"

namespace lmdbio::sync::test {

using lmdbio::test::ForSeeds;
using lmdbio::test::Random;

// A kAllReduce of `count` float32.
Request TensorOf(const std::string& name, int64_t count);

// A random graph of tensors. Its transitive closure is the oracle.
struct RandomGraph {
  Graph graph;
  std::vector<std::vector<uint32_t>> parents;  // [nodes]
  std::vector<int> tensor_of;                  // [nodes] -1: no collective
  std::vector<Request> tensors;                // in the order in which they were added
  std::vector<std::vector<uint8_t>> reaches;   // [nodes][nodes] whether the second needs the first
  std::vector<uint32_t> node_of;               // [tensors]
  std::vector<uint32_t> depth;                 // [nodes] nodes on the longest way before it
  std::vector<uint32_t> level;                 // [nodes] collectives on the longest way before it

  bool Needs(size_t tensor, size_t other) const {
    return reaches[node_of[other]][node_of[tensor]] != 0;
  }
  size_t TensorNamed(const std::string& name) const;
};
// kinds  1: all tensors may be fused; more: of several kinds and operations
RandomGraph MakeRandomGraph(Random& random, uint32_t node_count, uint32_t kinds);

// The names of the tensors of each bucket.
using Names = std::vector<std::vector<std::string>>;
Names NamesOf(const Plan& plan);

// The error of a plan: a missing or repeated tensor, a bucket of tensors that must not be fused, or
// a tensor that needs one of its own bucket or of a later one. "" if there is none.
std::string ProblemOf(const Plan& plan, const RandomGraph& graph);

}  // namespace lmdbio::sync::test
#endif  // LMDBIO_TESTS_SYNC_GRAPH_PLAN_CASES_H_
