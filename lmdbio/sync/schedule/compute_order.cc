#include "lmdbio/sync/schedule/compute_order.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <queue>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::sync {
namespace {

constexpr size_t kWordBits = 64;

Status CheckNodes(std::span<const ComputeNode> nodes) {
  int64_t sum_ns = 0;
  for (size_t node = 0; node < nodes.size(); ++node) {
    const int64_t cost_ns = nodes[node].cost_ns;
    if (cost_ns < 0 || cost_ns > kTimeMaxNs - sum_ns) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("node {}: it costs {} ns; expected 0 or more, and at most {} ns of "
                              "all nodes together",
                              node, cost_ns, kTimeMaxNs));
    }
    sum_ns += cost_ns;
    for (const uint32_t need : nodes[node].needs) {
      if (need < nodes.size()) continue;
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("node {} needs node {}, and the graph has {} nodes", node, need,
                              nodes.size()));
    }
  }
  return {};
}

// A gradient that needs nothing but a node of another gradient has no order of its own, so a node
// has one gradient.
Status CheckGradients(size_t node_count, std::span<const uint32_t> gradients) {
  std::vector<uint8_t> is_taken(node_count);
  for (size_t gradient = 0; gradient < gradients.size(); ++gradient) {
    const uint32_t node = gradients[gradient];
    if (node >= node_count) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("gradient {}: there is no node {}; the graph has {} nodes", gradient,
                              node, node_count));
    }
    if (std::exchange(is_taken[node], 1) == 0) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("gradient {}: node {} is a gradient already", gradient, node));
  }
  return {};
}

// All nodes, each behind those that it needs; of several the first one in the graph.
// Errors: kInvalidArgument  a cycle
Result<std::vector<uint32_t>> SortNodes(std::span<const ComputeNode> nodes) {
  std::vector<std::vector<uint32_t>> users(nodes.size());
  std::vector<size_t> missing(nodes.size());
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> free;
  for (uint32_t node = 0; node < nodes.size(); ++node) {
    for (const uint32_t need : nodes[node].needs) users[need].push_back(node);
    missing[node] = nodes[node].needs.size();
    if (missing[node] == 0) free.push(node);
  }
  std::vector<uint32_t> sorted;
  sorted.reserve(nodes.size());
  for (; !free.empty();) {
    const uint32_t node = free.top();
    free.pop();
    sorted.push_back(node);
    for (const uint32_t user : users[node]) {
      if (--missing[user] == 0) free.push(user);
    }
  }
  if (sorted.size() == nodes.size()) return sorted;
  // A node that is left needs another one that is left. So after as many steps as there are nodes
  // the walk is in a cycle.
  const auto is_left = [&](uint32_t node) { return missing[node] > 0; };
  auto node = static_cast<uint32_t>(
      std::ranges::find_if(missing, [](size_t count) { return count > 0; }) - missing.begin());
  for (size_t step = 0; step < nodes.size(); ++step) {
    node = *std::ranges::find_if(nodes[node].needs, is_left);
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("node {} depends on itself: the graph has a cycle", node));
}

// Requires: the nodes and gradients were checked
class ComputePass {
 public:
  // sorted  all nodes, each behind those that it needs
  ComputePass(std::span<const ComputeNode> nodes, std::span<const uint32_t> gradients,
              std::vector<uint32_t> sorted)
      : nodes_(nodes),
        gradients_(gradients),
        sorted_(std::move(sorted)),
        places_(nodes.size()),
        word_count_((gradients.size() + kWordBits - 1) / kWordBits),
        needed_by_(nodes.size() * word_count_),
        is_done_(nodes.size()),
        left_(gradients.size()) {
    for (uint32_t place = 0; place < sorted_.size(); ++place) places_[sorted_[place]] = place;
    FindUsers();
  }

  ComputeOrder Run() && {
    ComputeOrder order;
    order.nodes.reserve(nodes_.size());
    while (order.gradients.size() < gradients_.size()) {
      const size_t gradient = LeastLeft();
      const std::vector<uint32_t> added = NodesOf(gradient);
      if (!order.gradients.empty()) AddEdges(gradients_[order.gradients.back()], added, order);
      for (const uint32_t node : added) Finish(node);
      order.nodes.insert(order.nodes.end(), added.begin(), added.end());
      left_[gradient].is_chosen = true;
      order.gradients.push_back(gradient);
    }
    std::ranges::copy_if(sorted_, std::back_inserter(order.nodes),
                         [&](uint32_t node) { return is_done_[node] == 0; });
    return order;
  }

 private:
  // The computing that a gradient still needs, its own included.
  struct LeftWork {
    int64_t cost_ns = 0;
    size_t node_count = 0;
    bool is_chosen = false;
  };

  // Calls `visit` with each gradient that needs the node.
  template <typename Visit>
  void ForUsers(uint32_t node, const Visit& visit) const {
    for (size_t word = 0; word < word_count_; ++word) {
      for (uint64_t bits = needed_by_[node * word_count_ + word]; bits != 0; bits &= bits - 1) {
        visit(word * kWordBits + static_cast<size_t>(std::countr_zero(bits)));
      }
    }
  }

  // A gradient that needs a node needs all that this node needs.
  void FindUsers() {
    for (size_t gradient = 0; gradient < gradients_.size(); ++gradient) {
      needed_by_[gradients_[gradient] * word_count_ + gradient / kWordBits] |=
          uint64_t{1} << (gradient % kWordBits);
    }
    for (size_t place = sorted_.size(); place-- > 0;) {
      const uint32_t node = sorted_[place];
      for (const uint32_t need : nodes_[node].needs) {
        for (size_t word = 0; word < word_count_; ++word) {
          needed_by_[need * word_count_ + word] |= needed_by_[node * word_count_ + word];
        }
      }
      ForUsers(node, [&](size_t gradient) {
        left_[gradient].cost_ns += nodes_[node].cost_ns;
        ++left_[gradient].node_count;
      });
    }
  }

  // A gradient that another one needs has fewer nodes left, so it is chosen before that one.
  size_t LeastLeft() const {
    size_t least = gradients_.size();
    for (size_t gradient = 0; gradient < gradients_.size(); ++gradient) {
      const LeftWork& left = left_[gradient];
      if (left.is_chosen) continue;
      if (least == gradients_.size() ||
          std::tie(left.cost_ns, left.node_count) <
              std::tie(left_[least].cost_ns, left_[least].node_count)) {
        least = gradient;
      }
    }
    return least;
  }

  // The nodes that a gradient still needs, each behind those that it needs.
  std::vector<uint32_t> NodesOf(size_t gradient) {
    std::vector<uint32_t> found = {gradients_[gradient]};
    is_done_[found.front()] = 1;
    for (size_t next = 0; next < found.size(); ++next) {
      for (const uint32_t need : nodes_[found[next]].needs) {
        if (std::exchange(is_done_[need], 1) == 0) found.push_back(need);
      }
    }
    std::ranges::sort(found, {}, [&](uint32_t node) { return places_[node]; });
    return found;
  }

  // From the last gradient to the nodes that can be computed next: all they need was computed
  // before.
  void AddEdges(uint32_t last, const std::vector<uint32_t>& added, ComputeOrder& order) const {
    const auto is_added = [&](uint32_t node) {
      return std::ranges::binary_search(added, places_[node], {},
                                        [&](uint32_t one) { return places_[one]; });
    };
    for (const uint32_t node : added) {
      const std::vector<uint32_t>& needs = nodes_[node].needs;
      const bool is_free = std::ranges::none_of(needs, is_added);
      if (is_free && std::ranges::find(needs, last) == needs.end()) {
        order.edges.push_back({last, node});
      }
    }
  }

  void Finish(uint32_t node) {
    ForUsers(node, [&](size_t gradient) {
      left_[gradient].cost_ns -= nodes_[node].cost_ns;
      --left_[gradient].node_count;
    });
  }

  std::span<const ComputeNode> nodes_;
  std::span<const uint32_t> gradients_;
  std::vector<uint32_t> sorted_;
  std::vector<uint32_t> places_;  // [nodes] in sorted_
  size_t word_count_;
  std::vector<uint64_t> needed_by_;  // [nodes, word_count_] a bit for each gradient
  std::vector<uint8_t> is_done_;     // [nodes] computed for a gradient
  std::vector<LeftWork> left_;       // [gradients]
};

}  // namespace

Result<ComputeOrder> OrderComputing(std::span<const ComputeNode> nodes,
                                    std::span<const uint32_t> gradients) {
  LMDBIO_TRY_VOID(CheckNodes(nodes));
  LMDBIO_TRY_VOID(CheckGradients(nodes.size(), gradients));
  LMDBIO_TRY(std::vector<uint32_t> sorted, SortNodes(nodes));
  return ComputePass(nodes, gradients, std::move(sorted)).Run();
}

}  // namespace lmdbio::sync
