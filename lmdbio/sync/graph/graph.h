// lmdbio/sync/graph/graph.h - orders the tensors of a computation graph by their dependencies.
//
// Source: dissertation 6.3.4, figure 6.14; Pumma et al. IV-D, figure 8, table I.
#ifndef LMDBIO_SYNC_GRAPH_GRAPH_H_
#define LMDBIO_SYNC_GRAPH_GRAPH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// A computation graph: nodes compute, some of them are collective operations.
class Graph {
 public:
  using NodeIndex = uint32_t;

  // name  for messages; need not be unique
  NodeIndex AddNode(std::string name);
  // A node that is a collective operation on `tensor`. `tensor.name` is unique in the graph.
  NodeIndex AddCollective(Request tensor);
  // `to` needs the result of `from`.
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

// A collective of the graph, with its position among the others.
struct OrderedTensor {
  Request tensor;
  // The number of nodes before it on the longest path from a root.
  uint32_t depth = 0;
  // The number of collectives before it on the longest path; 0 if it needs none. Two collectives of
  // one level cannot need each other.
  uint32_t level = 0;
  // The largest position of a collective that this one needs, directly or through others; -1: it
  // needs none. It needs no collective behind that position, which is all that a plan must know.
  int64_t needs_up_to = -1;
};

// The collectives that `fetches` need, ordered as in 6.3.4: by depth, and at equal depth in the
// order in which they were added. So parents come before children, and siblings in the order of
// addition. Every rank with the same graph gets the same order, and no tensor comes before one that
// it needs.
// fetches  the nodes with the wanted results; empty: all nodes that no other node needs
// Errors: kInvalidArgument  a cycle among the needed nodes, names one of them; a tensor name that
//                           occurs twice in the graph; a fetch that is not a node
// Cost: O(nodes + edges) time and memory; no recursion
Result<std::vector<OrderedTensor>> OrderTensors(const Graph& graph,
                                                std::vector<Graph::NodeIndex> fetches = {});

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_GRAPH_GRAPH_H_
