// tests/control/plan_cases.h - graphs and programs by chance, and what is true of them.
#ifndef TESTS_CONTROL_PLAN_CASES_H_
#define TESTS_CONTROL_PLAN_CASES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lmdbio/control/graph.h"
#include "lmdbio/control/plan.h"
#include "lmdbio/control/request.h"
#include "tests/support/random.h"

namespace lmdbio::control::test {

using lmdbio::test::Random;

// Runs `check` for that many seeds, each of which gives "" or what is wrong, and fails at the first
// that is wrong. LMDBIO_TEST_SEED=N runs that one alone, LMDBIO_TEST_SEEDS=N so many.
void ForSeeds(uint64_t seed_count, const std::function<std::string(uint64_t seed)>& check);

// A kAllReduce of `count` float32.
Request TensorOf(const std::string& name, int64_t count);

// Tensors that need each other, by chance: its own transitive closure is the oracle.
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

// What is wrong with a plan: tensors missing or twice, buckets that mix what may not be fused, or a
// tensor that needs one of its own bucket or of a later one. "" if nothing.
std::string ProblemOf(const Plan& plan, const RandomGraph& graph);

}  // namespace lmdbio::control::test
#endif  // TESTS_CONTROL_PLAN_CASES_H_
