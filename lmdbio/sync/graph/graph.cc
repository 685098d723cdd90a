#include "lmdbio/sync/graph/graph.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {

Graph::NodeIndex Graph::AddNode(std::string name) {
  nodes_.push_back({std::move(name), -1, {}});
  return static_cast<NodeIndex>(nodes_.size() - 1);
}

Graph::NodeIndex Graph::AddCollective(Request tensor) {
  const NodeIndex node = AddNode(tensor.name);
  nodes_[node].tensor = static_cast<int32_t>(tensors_.size());
  tensors_.push_back(std::move(tensor));
  return node;
}

void Graph::AddEdge(NodeIndex from, NodeIndex to) {
  LMDBIO_CHECK(from < nodes_.size() && to < nodes_.size());
  // Only the parents are stored, because the pass goes from the fetches backwards.
  nodes_[to].parents.push_back(from);
  ++edge_count_;
}

// The reverse depth-first pass of 6.3.4, with an explicit stack, because graphs are deep. It visits
// each node and each edge once. The depth, level and needs of a node follow from those of its
// parents, which are all finished before it.
class GraphPass {
 public:
  using NodeIndex = Graph::NodeIndex;

  explicit GraphPass(const Graph& graph) : graph_(graph), states_(graph.nodes_.size()) {}

  Result<std::vector<OrderedTensor>> Run(std::vector<NodeIndex> fetches) {
    LMDBIO_TRY_VOID(CheckNames());
    if (fetches.empty()) {
      // The pass starts from every node, not only from nodes that no other node needs. Without
      // cycles both reach the same nodes. A graph that consists of cycles has no node of the second
      // kind.
      fetches.resize(states_.size());
      std::iota(fetches.begin(), fetches.end(), NodeIndex{0});
    }
    finished_.reserve(states_.size());
    for (const NodeIndex fetch : fetches) {
      if (fetch >= states_.size()) {
        return Fail(
            ErrorCode::kInvalidArgument,
            fmt::format("fetch {} is out of range; the graph has {} nodes", fetch, states_.size()));
      }
      LMDBIO_TRY_VOID(Visit(fetch));
    }
    return Order();
  }

 private:
  enum class Mark : uint8_t { kNew, kOpen, kFinished };
  struct VisitState {
    Mark mark = Mark::kNew;
    uint32_t next_parent = 0;
    uint32_t depth = 0;
    uint32_t level = 0;
    int64_t needs_up_to = -1;
    int64_t place = -1;  // of a collective in the order
  };

  Status CheckNames() const {
    std::unordered_set<std::string_view> names;
    names.reserve(graph_.tensors_.size());
    for (const Request& tensor : graph_.tensors_) {
      if (!names.insert(tensor.name).second) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("tensor {}: its name occurs twice in the graph", tensor.name));
      }
    }
    return {};
  }

  // `next_parent` of each open node replaces the frame of a recursive call. A node is open from its
  // first visit until all of its parents are finished, so an open parent closes a cycle.
  Status Visit(NodeIndex start) {
    if (states_[start].mark != Mark::kNew) return {};
    Open(start);
    while (!stack_.empty()) {
      const NodeIndex node = stack_.back();
      VisitState& state = states_[node];
      const std::vector<NodeIndex>& parents = graph_.nodes_[node].parents;
      if (state.next_parent == parents.size()) {
        Finish(node);
        continue;
      }
      const NodeIndex parent = parents[state.next_parent++];
      if (states_[parent].mark == Mark::kNew) {
        Open(parent);
      } else if (states_[parent].mark == Mark::kOpen) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("node {} ({}) depends on itself: the graph has a cycle", parent,
                                graph_.nodes_[parent].name));
      }
    }
    return {};
  }

  void Open(NodeIndex node) {
    states_[node].mark = Mark::kOpen;
    stack_.push_back(node);
  }

  // All parents are finished. The depth counts every node on the longest path, the level only the
  // collectives on it.
  void Finish(NodeIndex node) {
    VisitState& state = states_[node];
    for (const NodeIndex parent : graph_.nodes_[node].parents) {
      state.depth = std::max(state.depth, states_[parent].depth + 1);
      state.level = std::max(state.level, states_[parent].level + (IsCollective(parent) ? 1 : 0));
    }
    state.mark = Mark::kFinished;
    finished_.push_back(node);
    stack_.pop_back();
  }

  bool IsCollective(NodeIndex node) const { return graph_.nodes_[node].tensor >= 0; }

  // By depth, and at equal depth in the order of addition. A counting sort, so O(n). After the
  // partial sum `ends[d]` is the first position of depth d. The second loop visits the nodes in the
  // order of addition and advances it, so equal depths keep that order.
  std::vector<NodeIndex> SortedCollectives() const {
    std::vector<size_t> ends(states_.size() + 1);
    for (const NodeIndex node : finished_) {
      if (IsCollective(node)) ++ends[states_[node].depth + 1];
    }
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    std::vector<NodeIndex> sorted(ends.back());
    for (NodeIndex node = 0; node < states_.size(); ++node) {
      const VisitState& state = states_[node];
      if (state.mark == Mark::kFinished && IsCollective(node)) sorted[ends[state.depth]++] = node;
    }
    return sorted;
  }

  std::vector<OrderedTensor> Order() {
    const std::vector<NodeIndex> sorted = SortedCollectives();
    for (size_t place = 0; place < sorted.size(); ++place) {
      states_[sorted[place]].place = static_cast<int64_t>(place);
    }
    // A node needs its parents and all that they need. Parents come first in `finished_`, so one
    // pass over the edges suffices.
    for (const NodeIndex node : finished_) {
      VisitState& state = states_[node];
      for (const NodeIndex parent : graph_.nodes_[node].parents) {
        state.needs_up_to =
            std::max({state.needs_up_to, states_[parent].needs_up_to, states_[parent].place});
      }
    }
    std::vector<OrderedTensor> ordered;
    ordered.reserve(sorted.size());
    for (const NodeIndex node : sorted) {
      const VisitState& state = states_[node];
      const auto tensor = static_cast<size_t>(graph_.nodes_[node].tensor);
      ordered.push_back({graph_.tensors_[tensor], state.depth, state.level, state.needs_up_to});
    }
    return ordered;
  }

  const Graph& graph_;
  std::vector<VisitState> states_;   // [nodes]
  std::vector<NodeIndex> stack_;     // nodes that are open, each a parent of the one before it
  std::vector<NodeIndex> finished_;  // parents before children
};

Result<std::vector<OrderedTensor>> OrderTensors(const Graph& graph,
                                                std::vector<Graph::NodeIndex> fetches) {
  return GraphPass(graph).Run(std::move(fetches));
}

}  // namespace lmdbio::sync
