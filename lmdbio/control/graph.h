// lmdbio/control/graph.h - which tensors depend on which, and in which order they come.
//
// Source: dissertation 6.3.4, figure 6.14; Pumma et al. IV-D, figure 8, table I.
#ifndef LMDBIO_CONTROL_GRAPH_H_
#define LMDBIO_CONTROL_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/control/request.h"

namespace lmdbio::control {

// A computation graph: nodes compute, some of them are collective operations.
class Graph {
 public:
  using NodeIndex = uint32_t;

  // name  for messages; need not be unique
  NodeIndex AddNode(std::string name);
  // A node that is a collective operation on `tensor`. `tensor.name` is unique in the graph.
  NodeIndex AddCollective(Request tensor);
  // `to` needs what `from` gives.
  // Requires: both were added
  void AddEdge(NodeIndex from, NodeIndex to);

  uint64_t node_count() const { return nodes_.size(); }
  uint64_t edge_count() const { return edge_count_; }

 private:
  friend class GraphPass;  // graph.cc
  struct Node {
    std::string name;
    int32_t tensor = -1;             // in tensors_; -1: no collective
    std::vector<NodeIndex> parents;  // in the order in which they were added
  };
  std::vector<Node> nodes_;
  std::vector<Request> tensors_;
  uint64_t edge_count_ = 0;
};

// A collective of the graph, in its place.
struct OrderedTensor {
  Request tensor;
  // The length of the longest way here from a root, counted in the nodes before it.
  uint32_t depth = 0;
  // The length of the longest way here, counted in the collectives before it: 0 if it needs none.
  // Two collectives of one level cannot need each other.
  uint32_t level = 0;
  // The largest place in the order of a collective that this one needs, directly or through others;
  // -1: it needs none. What stands behind that place it does not need: all that a plan must know.
  int64_t needs_up_to = -1;
};

// The collectives that `fetches` need, numbered as 6.3.4 says: parents before children; siblings,
// who have the same parents and so the same depth, in the order in which they were added; others by
// their depth, and where that is equal by the order in which they were added. So every rank with
// the same graph gets the same order, and a tensor is never asked for before those that it needs.
// fetches  the nodes whose results are wanted; empty: all nodes that nothing needs
// Errors: kInvalidArgument  what the fetches need has a cycle, names a node in it; a tensor's name
//                           comes twice in the graph; a fetch is no node
// Cost: O(nodes + edges) time and memory; no recursion
Result<std::vector<OrderedTensor>> OrderTensors(const Graph& graph,
                                                std::vector<Graph::NodeIndex> fetches = {});

}  // namespace lmdbio::control
#endif  // LMDBIO_CONTROL_GRAPH_H_
