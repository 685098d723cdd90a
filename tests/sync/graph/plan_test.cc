// Goal: no bucket crosses a dependency, so ranks do not deadlock in any order of submissions; and
// PlanProgress agrees with a list of the submitted and sent tensors.
#include "lmdbio/sync/graph/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::MakeRandomGraph;
using test::Names;
using test::NamesOf;
using test::Random;
using test::RandomGraph;
using test::TensorOf;

OrderedTensor Needing(Request tensor, int64_t needs_up_to) {
  OrderedTensor ordered;
  ordered.tensor = std::move(tensor);
  ordered.needs_up_to = needs_up_to;
  return ordered;
}

PlanOptions OptionsOf(uint64_t threshold_bytes, uint32_t num_groups = 0) {
  PlanOptions options;
  options.fusion.threshold_bytes = threshold_bytes;
  options.num_groups = num_groups;
  return options;
}

TEST_CASE("The buckets of figure 6.14 are those of the dissertation", "[control][plan]") {
  std::vector<OrderedTensor> tensors;
  for (const int needs_up_to : {-1, -1, 0, 2, -1}) {
    tensors.push_back(Needing(TensorOf(fmt::format("{}", tensors.size()), 10), needs_up_to));
  }
  REQUIRE(NamesOf(Plan::FromOrder(tensors, {}, 1)) == Names{{"0", "1"}, {"2"}, {"3", "4"}});
  REQUIRE(NamesOf(Plan::FromOrder(tensors, OptionsOf(64), 1)) ==
          Names{{"0"}, {"1"}, {"2"}, {"3"}, {"4"}});
}

TEST_CASE("Each kind has its bucket, and other operations one each", "[control][plan]") {
  const auto of_type = [](const std::string& name, DataType type) {
    Request tensor = TensorOf(name, 8);
    tensor.type = type;
    return tensor;
  };
  Request barrier = TensorOf("barrier", 0);
  barrier.operation = Operation::kBarrier;
  const std::vector<OrderedTensor> tensors = {Needing(of_type("f1", DataType::kFloat32), -1),
                                              Needing(of_type("h1", DataType::kFloat16), -1),
                                              Needing(barrier, -1),
                                              Needing(of_type("f2", DataType::kFloat32), -1),
                                              Needing(of_type("h2", DataType::kFloat16), -1),
                                              Needing(of_type("f3", DataType::kFloat32), 2),
                                              Needing(of_type("h3", DataType::kFloat16), 3)};
  REQUIRE(NamesOf(Plan::FromOrder(tensors, {}, 1)) ==
          Names{{"f1", "f2"}, {"h1", "h2"}, {"barrier"}, {"f3"}, {"h3"}});
  REQUIRE(NamesOf(Plan::FromOrder(tensors, OptionsOf(0), 1)).size() == tensors.size());
}

TEST_CASE("The last buckets of a plan are smaller", "[control][plan]") {
  std::vector<OrderedTensor> tensors;
  for (int i = 0; i < 16; ++i) tensors.push_back(Needing(TensorOf(fmt::format("{}", i), 16), -1));
  const auto sizes_of = [&](uint64_t threshold_bytes, uint64_t last_bucket_bytes) {
    PlanOptions options = OptionsOf(threshold_bytes);
    options.last_bucket_bytes = last_bucket_bytes;
    std::vector<size_t> sizes;
    for (const auto& names : NamesOf(Plan::FromOrder(tensors, options, 1))) {
      sizes.push_back(names.size());
    }
    return sizes;
  };
  // Of 64 bytes each.
  REQUIRE(sizes_of(256, 0) == std::vector<size_t>{4, 4, 4, 4});
  REQUIRE(sizes_of(256, 64) == std::vector<size_t>{4, 4, 4, 2, 1, 1});
  REQUIRE(sizes_of(256, 128) == std::vector<size_t>{4, 4, 4, 2, 2});
  REQUIRE(sizes_of(64 << 20, 1) == std::vector<size_t>{8, 4, 2, 1, 1});
  REQUIRE(sizes_of(128, 256) == sizes_of(128, 0));  // never above the threshold
  tensors[15].tensor.operation = Operation::kBarrier;
  tensors[14].tensor.shape = {1'000};  // more than half of all bytes: its bucket is its own
  REQUIRE(sizes_of(64 << 20, 64) == std::vector<size_t>{14, 1, 1});
}

TEST_CASE("Groups stay together if dependencies permit", "[control][plan]") {
  const auto grouped = [](const std::string& name) {
    Request tensor = TensorOf(name, 16);
    tensor.group = "g";
    return tensor;
  };
  const std::vector<OrderedTensor> free = {
      Needing(TensorOf("a", 16), -1), Needing(grouped("g1"), 0), Needing(TensorOf("b", 16), 1),
      Needing(grouped("g2"), 0), Needing(TensorOf("c", 16), 3)};
  REQUIRE(NamesOf(Plan::FromOrder(free, OptionsOf(64), 1)) ==
          Names{{"a"}, {"g1", "g2"}, {"b"}, {"c"}});
  REQUIRE(NamesOf(Plan::FromOrder(free, OptionsOf(0), 1)) ==
          Names{{"a"}, {"g1", "g2"}, {"b"}, {"c"}});
  std::vector<OrderedTensor> bound = free;
  bound[3].needs_up_to = 2;  // g2 needs b, which needs g1
  REQUIRE(NamesOf(Plan::FromOrder(bound, {}, 1)) == Names{{"a"}, {"g1"}, {"b"}, {"g2"}, {"c"}});
}

TEST_CASE("Groups have equal numbers of bytes, or of tensors", "[control][plan]") {
  std::vector<OrderedTensor> tensors;
  for (const int64_t count : {600, 100, 100, 100, 100, 100, 100}) {
    tensors.push_back(Needing(TensorOf(fmt::format("{}", tensors.size()), count), -1));
  }
  PlanOptions options = OptionsOf(64, 2);
  REQUIRE(NamesOf(Plan::FromOrder(tensors, options, 1)) ==
          Names{{"0"}, {"1", "2", "3", "4", "5", "6"}});
  options.group_by = PlanOptions::GroupBy::kTensors;
  REQUIRE(NamesOf(Plan::FromOrder(tensors, options, 1)) ==
          Names{{"0", "1", "2"}, {"3", "4", "5", "6"}});
  options.num_groups = 3;
  REQUIRE(NamesOf(Plan::FromOrder(tensors, options, 1)) ==
          Names{{"0", "1"}, {"2", "3"}, {"4", "5", "6"}});
}

TEST_CASE("num_groups gives that many buckets of similar size", "[control][plan]") {
  std::vector<OrderedTensor> tensors;
  for (int i = 0; i < 100; ++i) tensors.push_back(Needing(TensorOf(fmt::format("t{}", i), 16), -1));
  for (const uint32_t groups : {1U, 2U, 3U, 7U, 50U, 99U, 100U, 1000U}) {
    CAPTURE(groups);
    const Plan plan = Plan::FromOrder(tensors, OptionsOf(64, groups), 1);
    REQUIRE(plan.buckets().size() == std::min<size_t>(groups, tensors.size()));
    size_t smallest = 100, largest = 0;
    for (const Bucket& bucket : plan.buckets()) {
      smallest = std::min(smallest, bucket.tensors.size());
      largest = std::max(largest, bucket.tensors.size());
    }
    REQUIRE(largest - smallest <= 1);
  }
  // A tensor that is larger than its share has its own bucket; the others share the rest.
  tensors[0].tensor.shape = {160'000};
  const Plan plan = Plan::FromOrder(tensors, OptionsOf(64, 4), 1);
  REQUIRE(plan.buckets().size() == 4);
  for (const Bucket& bucket : plan.buckets()) {
    REQUIRE((bucket.tensors.size() == 1 || bucket.tensors.size() == 33));
  }
}

TEST_CASE("Equal plans have equal digests, others differ", "[control][plan]") {
  const std::vector<OrderedTensor> tensors = {Needing(TensorOf("a", 16), -1),
                                              Needing(TensorOf("b", 16), -1),
                                              Needing(TensorOf("c", 32), 1)};
  const uint64_t digest = Plan::FromOrder(tensors, {}, 7).digest();
  REQUIRE(Plan::FromOrder(tensors, {}, 7).digest() == digest);
  std::set<uint64_t> digests = {digest, Plan::FromOrder(tensors, {}, 8).digest(),
                                Plan::FromOrder(tensors, OptionsOf(64), 7).digest(),
                                Plan::FromOrder({}, {}, 7).digest()};
  size_t count = digests.size();
  REQUIRE(count == 4);
  const auto add = [&](auto change) {
    std::vector<OrderedTensor> changed = tensors;
    change(changed);
    digests.insert(Plan::FromOrder(changed, {}, 7).digest());
    return digests.size() == ++count;
  };
  REQUIRE(add([](auto& list) { list.pop_back(); }));
  REQUIRE(add([](auto& list) { std::swap(list[0], list[1]); }));
  REQUIRE(add([](auto& list) { list[2].needs_up_to = -1; }));
  REQUIRE(add([](auto& list) { list[0].tensor.name = "z"; }));
  REQUIRE(add([](auto& list) { list[0].tensor.shape = {4, 4}; }));
  REQUIRE(add([](auto& list) { list[0].tensor.postscale = 0.25; }));
  REQUIRE(add([](auto& list) { list[0].tensor.group = "g"; }));
}

// Ranks that submit tensors in any order that their programs permit, and send the buckets of their
// PlanProgress.
class PlanningRanks {
 public:
  // is_ahead  whether a rank may begin an iteration before it has waited for the one before
  PlanningRanks(const RandomGraph& graph, const Plan& plan, size_t rank_count, bool is_ahead)
      : graph_(graph), plan_(plan), is_ahead_(is_ahead), done_(graph.tensors.size()) {
    for (size_t i = 0; i < rank_count; ++i) {
      ranks_.push_back({PlanProgress(plan), std::vector<size_t>(graph.tensors.size()), nullptr});
    }
  }

  std::string Run(Random& random, size_t iterations) {
    while (*std::min_element(done_.begin(), done_.end()) < iterations) {
      PlanningRank& rank = ranks_[random.Below(ranks_.size())];
      std::string problem = random.Below(3) == 0 ? Send(rank) : SubmitOne(rank, random, iterations);
      if (!problem.empty()) return problem;
      if (const bool is_stuck = Finish() == 0 && IsStuck(iterations); is_stuck) return "a deadlock";
    }
    return "";
  }

 private:
  struct PlanningRank {
    PlanProgress walk;
    std::vector<size_t> submitted;  // [tensors] times
    const PlanStep* step;           // that is being made
  };

  std::vector<size_t> Legal(const PlanningRank& rank, size_t iterations) const {
    std::vector<size_t> legal;
    const size_t all_done = *std::min_element(done_.begin(), done_.end());
    for (size_t t = 0; t < done_.size(); ++t) {
      const size_t iteration = rank.submitted[t];
      bool is_legal = iteration == done_[t] && iteration < iterations;
      if (!is_ahead_) is_legal = is_legal && all_done >= iteration;
      for (size_t other = 0; other < done_.size(); ++other) {
        is_legal = is_legal && (!graph_.Needs(t, other) || done_[other] > iteration);
      }
      if (is_legal) legal.push_back(t);
    }
    return legal;
  }

  std::string SubmitOne(PlanningRank& rank, Random& random, size_t iterations) {
    const std::vector<size_t> legal = Legal(rank, iterations);
    if (legal.empty()) return "";
    const size_t t = legal[random.Below(legal.size())];
    ++rank.submitted[t];
    if (!rank.walk.Submit(graph_.tensors[t])) return "refused: " + graph_.tensors[t].name;
    return rank.walk.Submit(graph_.tensors[t]) ? "taken twice: " + graph_.tensors[t].name : "";
  }

  std::string Send(PlanningRank& rank) {
    if (rank.step != nullptr) return "";
    rank.step = rank.walk.ReadyStep();
    if (rank.walk.next_step() != sent_count_ % plan_.steps().size()) return "out of turn";
    return (rank.step == nullptr) == (rank.walk.missing_count() == 0)
               ? "nothing missing, nothing ready"
               : "";
  }

  size_t Finish() {
    if (!std::all_of(ranks_.begin(), ranks_.end(), [](auto& rank) { return rank.step; })) return 0;
    for (const Request& tensor : plan_.buckets()[ranks_[0].step->bucket].tensors)
      ++done_[graph_.TensorNamed(tensor.name)];
    for (PlanningRank& rank : ranks_) {
      rank.step = nullptr;
      rank.walk.Advance();
    }
    ++sent_count_;
    return 1;
  }

  bool IsStuck(size_t iterations) {
    return std::all_of(ranks_.begin(), ranks_.end(), [&](PlanningRank& rank) {
      if (!Legal(rank, iterations).empty()) return false;
      return rank.step != nullptr || rank.walk.missing_count() > 0;
    });
  }

  const RandomGraph& graph_;
  const Plan& plan_;
  bool is_ahead_;
  std::vector<size_t> done_;  // [tensors] times, on all ranks
  std::vector<PlanningRank> ranks_;
  size_t sent_count_ = 0;
};

PlanOptions RandomOptions(Random& random) {
  return OptionsOf(random.Below(4) == 0 ? random.Below(65) : random.Below(3000),
                   random.Below(3) == 0 ? static_cast<uint32_t>(random.Below(6)) : 0);
}

uint64_t RandomTail(Random& random) { return random.Below(2) == 0 ? random.Below(1000) : 0; }

TEST_CASE("Plans of random graphs cross no dependency and do not deadlock", "[control][plan]") {
  ForSeeds(3'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    RandomGraph graph = MakeRandomGraph(random, static_cast<uint32_t>(random.Between(1, 16)),
                                        random.Below(2) == 0 ? 1 : 4);
    if (graph.tensors.empty()) return "";
    auto ordered = OrderTensors(graph.graph);
    if (!ordered) return ordered.error().message();
    if (random.Below(3) == 0) {  // random groups, which may contradict the dependencies
      for (OrderedTensor& tensor : *ordered) {
        tensor.tensor.group = random.Below(2) == 0 ? "g" : "";
        graph.tensors[graph.TensorNamed(tensor.tensor.name)].group = tensor.tensor.group;
      }
    }
    PlanOptions options = RandomOptions(random);
    options.last_bucket_bytes = RandomTail(random);
    const Plan plan = Plan::FromOrder(*ordered, options, seed);
    if (std::string problem = test::ProblemOf(plan, graph); !problem.empty()) return problem;
    for (const Bucket& bucket : plan.buckets()) {
      const bool may_be_long =
          options.num_groups > 0 || bucket.tensors.size() == 1 || !bucket.tensors[0].group.empty();
      const uint64_t bytes = PlacesOf(bucket.tensors).size_bytes;
      if (!may_be_long && bytes > options.fusion.threshold_bytes) return "over the threshold";
    }
    PlanningRanks ranks(graph, plan, random.Between(1, 4), random.Below(2) == 0);
    return ranks.Run(random, 3);
  });
}

TEST_CASE("A bucket ends only for a dependency or its limit", "[control][plan]") {
  ForSeeds(3'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const RandomGraph graph =
        MakeRandomGraph(random, static_cast<uint32_t>(random.Between(1, 20)), 1);
    const auto ordered = OrderTensors(graph.graph);
    if (!ordered) return ordered.error().message();
    PlanOptions options = OptionsOf(random.Between(1, 3000));
    options.last_bucket_bytes = RandomTail(random);
    uint64_t left = 0;
    for (const OrderedTensor& tensor : *ordered) left += FusedBytes(tensor.tensor);
    Names expected;
    std::vector<size_t> bucket;
    uint64_t bytes = 0, limit = 0;
    for (const OrderedTensor& tensor : *ordered) {
      const size_t t = graph.TensorNamed(tensor.tensor.name);
      const bool needs_one = std::any_of(bucket.begin(), bucket.end(),
                                         [&](size_t other) { return graph.Needs(t, other); });
      const uint64_t more = FusedBytes(tensor.tensor);
      if (expected.empty() || needs_one || bytes + more > limit) {
        expected.emplace_back();
        bucket.clear();
        bytes = 0;
        limit = options.fusion.threshold_bytes;
        if (options.last_bucket_bytes > 0) {
          limit = std::min(limit, std::max(options.last_bucket_bytes, left / 2));
        }
      }
      expected.back().push_back(tensor.tensor.name);
      bucket.push_back(t);
      bytes += more;
      left -= more;
    }
    const Plan plan = Plan::FromOrder(*ordered, options, 1);
    return NamesOf(plan) == expected ? "" : "other buckets than the closure allows";
  });
}

// The oracle lists the tensors that were submitted since their bucket was last sent.
TEST_CASE("PlanProgress agrees with a list of submitted tensors", "[control][plan]") {
  ForSeeds(3'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    std::vector<OrderedTensor> tensors;
    const uint64_t count = random.Between(1, 12);
    for (uint64_t i = 0; i < count; ++i) {
      tensors.push_back(Needing(TensorOf(fmt::format("t{}", i), 16), -1));
    }
    const Plan plan = Plan::FromOrder(tensors, OptionsOf(random.Below(300)), 1);
    PlanProgress walk(plan);
    std::set<std::string> come;
    size_t next = 0;
    for (int step = 0; step < 100; ++step) {
      const Request request = tensors[random.Below(count)].tensor;
      Request other = request;
      other.shape = {1};
      if (walk.Submit(other)) return "another shape was taken";
      if (walk.Submit(TensorOf("unknown", 16))) return "an unknown name was taken";
      if (walk.Submit(request) != come.insert(request.name).second) return "taken or not";
      std::vector<std::string> missing;
      for (const Request& tensor : plan.buckets()[next].tensors) {
        if (!come.contains(tensor.name)) missing.push_back(tensor.name);
      }
      if (walk.missing_count() != missing.size()) return "what is missing";
      const PlanStep* ready = walk.ReadyStep();
      if ((ready != nullptr) != missing.empty()) return "ready or not";
      if (walk.next_step() != next) return "which is next";
      if (ready != nullptr) {
        for (const Request& tensor : plan.buckets()[ready->bucket].tensors) come.erase(tensor.name);
        walk.Advance();
        next = (next + 1) % plan.buckets().size();
      }
      if (walk.has_pending() != !come.empty()) return "whether something is pending";
    }
    std::vector<std::string> expected;
    for (size_t i = 0; i < plan.buckets().size(); ++i) {
      for (const Request& tensor : plan.buckets()[(next + i) % plan.buckets().size()].tensors) {
        if (come.contains(tensor.name)) expected.push_back(tensor.name);
      }
    }
    std::vector<std::string> taken;
    for (const Request& tensor : walk.TakePending()) taken.push_back(tensor.name);
    if (taken != expected) return "what was taken back";
    return walk.has_pending() || !walk.TakePending().empty() ? "taken back twice" : "";
  });
}

TEST_CASE("An empty plan has nothing to send", "[control][plan]") {
  PlanProgress walk(Plan::FromOrder({}, {}, 1));
  REQUIRE_FALSE(walk.Submit(TensorOf("a", 1)));
  REQUIRE(walk.ReadyStep() == nullptr);
  REQUIRE(walk.missing_count() == 0);
  REQUIRE(walk.TakePending().empty());
}

}  // namespace
}  // namespace lmdbio::sync
