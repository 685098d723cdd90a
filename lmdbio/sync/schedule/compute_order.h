// lmdbio/sync/schedule/compute_order.h - an order of computing that has its gradients ready early.
//
// A graph with branches can be computed in many orders. All ranks need the same one, because a
// gradient travels when the last rank has it. And an order that completes one gradient after the
// other has gradients to send earlier than one that computes all branches at once.
//
// Source: Hashemi et al. 4.1; docs/caramel.md "Order of computing".
#ifndef LMDBIO_SYNC_SCHEDULE_COMPUTE_ORDER_H_
#define LMDBIO_SYNC_SCHEDULE_COMPUTE_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::sync {

// A node of a program's graph: a computation.
struct ComputeNode {
  int64_t cost_ns = 0;               // its least time of several iterations
  std::vector<uint32_t> needs = {};  // the nodes whose results it takes
};

// A dependency: `to` does not begin before `from` has ended.
struct ComputeEdge {
  uint32_t from = 0;
  uint32_t to = 0;
  friend auto operator<=>(const ComputeEdge&, const ComputeEdge&) = default;
};

struct ComputeOrder {
  std::vector<size_t> gradients;   // positions in the argument, in the order of their completion
  std::vector<uint32_t> nodes;     // all nodes: for each gradient those that it adds, then the rest
  std::vector<ComputeEdge> edges;  // new ones, which leave no other order of the gradients
};

// The order of the paper. The gradient that needs the least time of computing comes first. What it
// needs counts as computed from then on, and the next one is chosen in the same way. Of equal times
// the gradient that needs fewer nodes comes first, and of equal numbers the first one in the
// argument.
//
// With the edges, only nodes that the present gradient needs can be computed at any time: each
// gradient comes before those nodes of the next one that need no other nodes of it. Nodes that no
// gradient needs are in no edge. The nodes of one gradient may be computed in any order that the
// graph allows, also at the same time.
//
// The result is the same on all ranks if the arguments are, so rank 0 measures costs for all.
// nodes      [n] known by their positions
// gradients  the nodes that compute gradients; several gradients of one node are one
// Errors: kInvalidArgument  a node needs one that does not exist, or itself, directly or through
//                           others; a gradient is no node, or occurs twice; a cost is negative, or
//                           all of them exceed kTimeMaxNs
// Cost: O(n log n + edges + gradients * (gradients + n + edges / 64))
// Source: Hashemi et al. 4.1
Result<ComputeOrder> OrderComputing(std::span<const ComputeNode> nodes,
                                    std::span<const uint32_t> gradients);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_SCHEDULE_COMPUTE_ORDER_H_
