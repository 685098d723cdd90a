// Goal: requests that go up a tree of hosts get the same responses as without a tree, and no root
// handles more messages than its children and its parent send.
// Method: all ranks in one thread. Oracle: the same coordinator without a tree.
#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/sync/request/message_codec.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/sync/control/control_simulator.h"
#include "tests/sync/control/named_request.h"

namespace lmdbio::sync {
namespace {

using test::Ensemble;
using test::Named;
using test::Random;

size_t At(int number) { return static_cast<size_t>(number); }

CoordinatorOptions Hierarchical() {
  CoordinatorOptions options;
  options.kind = "hierarchical";
  return options;
}

// One rank on each host.
std::vector<int> SingleRankHosts(int rank_count) {
  std::vector<int> host_of(At(rank_count));
  for (int rank = 0; rank < rank_count; ++rank) host_of[At(rank)] = rank;
  return host_of;
}

// The responses of a round, in any order.
std::vector<uint64_t> DigestsOf(const std::vector<Response>& responses) {
  std::vector<uint64_t> digests;
  for (const Response& response : responses) digests.push_back(response.digest());
  std::ranges::sort(digests);
  return digests;
}

std::vector<std::string> StallsOf(Coordinator& coordinator) {
  std::vector<std::string> lines;
  for (const Stall& stall : coordinator.Stalls()) {
    lines.push_back(stall.name);
    for (const int rank : stall.missing_ranks) lines.back() += " " + std::to_string(rank);
  }
  std::ranges::sort(lines);
  return lines;
}

// The requests of one random job, with and without a tree. Every rank submits the same tensors, at
// different times.
class TwoEnsembles {
 public:
  TwoEnsembles(Random& random, int rank_count, int tree_arity)
      : random_(random),
        rank_count_(rank_count),
        host_of_(RandomHosts(random, rank_count)),
        flat_(Hierarchical(), rank_count, host_of_),
        tree_(Hierarchical(), rank_count, host_of_, tree_arity),
        is_one_level_(tree_arity >= host_of_.back()),
        unsubmitted_(At(rank_count)) {
    for (auto& names : unsubmitted_) names = {"a", "b", "c", "d", "e"};
  }

  // Returns: "" or the difference
  std::string Round() {
    for (int rank = 0; rank < rank_count_; ++rank) SubmitSome(rank);
    const std::vector<Response> expected = flat_.Round();
    const std::vector<Response> got = tree_.Round();
    if (DigestsOf(got) != DigestsOf(expected)) return "other responses";
    if (is_one_level_ && got != expected) return "another order";
    for (const Response& response : got) {
      for (auto& names : unsubmitted_) names.insert(response.tensors.front().name);
    }
    return MarkAllAndCompare();
  }

 private:
  static std::vector<int> RandomHosts(Random& random, int rank_count) {
    std::vector<int> host_of;
    const uint64_t size = 1 + random.Below(3);
    int host = 0;
    for (int rank = 0; rank < rank_count; ++rank) {
      if (rank > 0 && random.Below(size) == 0) ++host;
      host_of.push_back(host);
    }
    return host_of;
  }

  void SubmitSome(int rank) {
    auto& names = unsubmitted_[At(rank)];
    for (auto name = names.begin(); name != names.end();) {
      if (random_.Below(4) == 0) {
        ++name;
        continue;
      }
      Request request = Named(*name);
      if (random_.Below(20) == 0) request.shape = {9};
      flat_[rank].Submit(request);
      tree_[rank].Submit(request);
      name = names.erase(name);
    }
  }

  // Every rank marks what it waits for. Afterwards rank 0 knows all missing ranks, with a tree and
  // without.
  std::string MarkAllAndCompare() {
    if (random_.Below(3) != 0) return "";
    const std::set<std::string> all = {"a", "b", "c", "d", "e"};
    for (int rank = 0; rank < rank_count_; ++rank) {
      std::vector<std::string> waiting;
      std::ranges::set_difference(all, unsubmitted_[At(rank)], std::back_inserter(waiting));
      flat_[rank].MarkStalled(waiting);
      tree_[rank].MarkStalled(waiting);
    }
    if (!flat_.Round().empty() || !tree_.Round().empty()) return "a response without a request";
    return StallsOf(tree_[0]) == StallsOf(flat_[0]) ? "" : "other missing ranks";
  }

  Random& random_;
  int rank_count_;
  std::vector<int> host_of_;
  Ensemble flat_;
  Ensemble tree_;
  bool is_one_level_;
  std::vector<std::set<std::string>> unsubmitted_;  // [ranks]
};

TEST_CASE("A tree of hosts gives the responses and stalls of a job without a tree",
          "[control][tree]") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    const int rank_count = 1 + static_cast<int>(random.Below(40));
    const int tree_arity = 1 + static_cast<int>(random.Below(6) == 0 ? 40 : random.Below(5));
    CAPTURE(seed, rank_count, tree_arity);
    TwoEnsembles jobs(random, rank_count, tree_arity);
    for (int round = 0; round < 8; ++round) REQUIRE(jobs.Round() == "");
  }
}

struct TreeShape {
  int rank_count;
  int tree_arity;
};

// Levels of a full tree that holds so many hosts, without the top.
uint64_t LevelsOf(const TreeShape& shape) {
  uint64_t levels = 0;
  uint64_t width = 1;
  for (uint64_t room = 1; room < static_cast<uint64_t>(shape.rank_count); room += width) {
    width *= static_cast<uint64_t>(shape.tree_arity);
    ++levels;
  }
  return levels;
}

TEST_CASE("A root handles the messages of its children and its parent alone", "[control][tree]") {
  const auto shape = GENERATE(TreeShape{8, 2}, TreeShape{8, 4}, TreeShape{64, 2}, TreeShape{64, 8},
                              TreeShape{512, 4}, TreeShape{512, 16}, TreeShape{4096, 2},
                              TreeShape{4096, 4}, TreeShape{4096, 8}, TreeShape{4096, 16});
  CAPTURE(shape.rank_count, shape.tree_arity);
  Ensemble ranks(Hierarchical(), shape.rank_count, SingleRankHosts(shape.rank_count),
                 shape.tree_arity);
  for (int rank = 0; rank < shape.rank_count; ++rank) ranks[rank].Submit(Named("a"));
  REQUIRE(ranks.Round().size() == 1);
  const auto arity = static_cast<uint64_t>(shape.tree_arity);
  const auto links = static_cast<uint64_t>(shape.rank_count - 1);
  uint64_t children_sum = 0;
  uint64_t parents_sum = 0;
  uint64_t busiest = 0;
  uint64_t longest = 0;  // way of a request to rank 0: the messages that roots on it handle
  std::vector<uint64_t> way(At(shape.rank_count), 0);
  for (int rank = 0; rank < shape.rank_count; ++rank) {
    const auto& counts = ranks.transport().CountsOf(rank);
    children_sum += counts.from_children;
    parents_sum += counts.from_first;
    busiest = std::max(busiest, counts.from_children);
    if (rank > 0) {
      const size_t above = At(ParentHost(rank, shape.tree_arity));
      way[At(rank)] =
          way[above] + ranks.transport().CountsOf(static_cast<int>(above)).from_children;
    }
    longest = std::max(longest, way[At(rank)]);
    CHECK(counts.from_host == 0);
    CHECK(counts.from_first == (rank == 0 ? 0 : 2));  // a list up, an answer down
  }
  CHECK(busiest == 2 * arity);
  CHECK(children_sum == 2 * links);
  CHECK(parents_sum == 2 * links);
  CHECK(longest <= 2 * arity * LevelsOf(shape));
}

TEST_CASE("Without a tree rank 0 handles the messages of all hosts", "[control][tree]") {
  const int rank_count = GENERATE(8, 512);
  const int tree_arity = GENERATE(0, 1000);
  Ensemble ranks(Hierarchical(), rank_count, SingleRankHosts(rank_count), tree_arity);
  ranks.Round();
  CHECK(ranks.transport().CountsOf(0).from_children == 2 * static_cast<uint64_t>(rank_count - 1));
  CHECK(ranks.transport().CountsOf(rank_count - 1).all() == 2);
}

TEST_CASE("A root needs one exchange more in each direction if it has children and a parent",
          "[control][tree]") {
  Ensemble ranks(Hierarchical(), 14, {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6}, 2);
  ranks.Round();
  CHECK(ranks[0].counters().exchange_count == 4);
  CHECK(ranks[2].counters().exchange_count == 6);
  CHECK(ranks[3].counters().exchange_count == 2);
  CHECK(ranks[12].counters().exchange_count == 4);
  CHECK(ranks.transport().CountsOf(2).from_host == 2);
}

// The list that host 1 of seven sends to rank 0, in a tree of arity 2. Hosts 3 and 4 are below it.
RequestList ListOfHostOne(const std::vector<RequestList>& from_children) {
  Ranks ranks{1, 7, SingleRankHosts(7), 2};
  auto coordinator = Coordinator::Create(Hierarchical(), ranks);
  REQUIRE(coordinator);
  (*coordinator)->Submit(Named("a"));
  REQUIRE((*coordinator)->BeginRound());
  Reply reply;
  reply.gathered.push_back(Encode(RequestList{}));
  for (const RequestList& list : from_children) reply.gathered.push_back(Encode(list));
  const auto up = (*coordinator)->Continue(std::move(reply));
  REQUIRE(up);
  CHECK((*up)->scope == ExchangeScope::kParent);
  return *DecodeAsks((*up)->bytes, 7);
}

TEST_CASE("A root merges the equal requests of the hosts below it", "[control][tree]") {
  RequestList third, fourth;
  third.asks.push_back({Named("a"), {3}, 0});
  fourth.asks.push_back({Named("a"), {4}, 0});
  const RequestList merged = ListOfHostOne({third, fourth});
  REQUIRE(merged.asks.size() == 1);
  CHECK(merged.asks.front().ranks == std::vector<int32_t>{1, 3, 4});
  CHECK_FALSE(merged.is_ending);
  // An incomplete request waits in the root, until it is named as stalled.
  CHECK(ListOfHostOne({third, RequestList{}}).asks.empty());
  fourth.asks.clear();
  fourth.stalled = {"a", "b"};
  third.stalled = {"a"};
  third.is_ending = true;
  const RequestList forwarded = ListOfHostOne({third, fourth});
  REQUIRE(forwarded.asks.size() == 1);
  CHECK(forwarded.asks.front().ranks == std::vector<int32_t>{1, 3});
  CHECK(forwarded.stalled == std::vector<std::string>{"a", "b"});
  CHECK(forwarded.is_ending);
}

TEST_CASE("A root may speak for the hosts below it and no others", "[control][tree]") {
  const auto error_of = [](int speaker, int spoken_for) {
    auto first = Coordinator::Create(Hierarchical(), {0, 7, SingleRankHosts(7), 2});
    REQUIRE(first);
    (*first)->BeginRound();
    Reply reply;
    for (const int host : {0, 1, 2}) {
      RequestList list;
      if (host == speaker) list.asks.push_back({Named("a"), {spoken_for}, 0});
      reply.gathered.push_back(Encode(list));
    }
    const auto next = (*first)->Continue(std::move(reply));
    return next ? std::string() : next.error().message();
  };
  CHECK(error_of(1, 1).empty());
  CHECK(error_of(1, 4).empty());
  CHECK(error_of(2, 6).empty());
  CHECK(error_of(1, 5) == "rank 1 requests tensor 'a' for rank 5");
  CHECK(error_of(2, 0) == "rank 2 requests tensor 'a' for rank 0");
  const auto none = Coordinator::Create(Hierarchical(), {0, 2, {0, 1}, -1});
  REQUIRE(!none);
  CHECK(none.error().message() == "a tree of hosts has an arity of -1; expected 0 or more");
}

}  // namespace
}  // namespace lmdbio::sync
