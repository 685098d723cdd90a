// Goal: all ranks learn the same plan after the same response; the plan respects the waits of every
// rank; iterations that change are not learned.
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/graph/plan_learner.h"
#include "lmdbio/sync/graph/plan_proposal.h"
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

Response ResponseOf(const std::vector<Request>& tensors) {
  Response response;
  response.tensors = tensors;
  return response;
}

// Runs a program: "+a" submits a, "a" is a wait for a, "=abc" is one response for a, b and c,
// "!abc" is one response for each. Names have one letter.
void Play(PlanLearner& learner, const std::vector<std::string>& steps) {
  for (const std::string& step : steps) {
    std::vector<Request> tensors;
    for (const char name : step.substr(1)) tensors.push_back(TensorOf(std::string(1, name), 10));
    if (step[0] == '+') {
      for (const Request& tensor : tensors) learner.OnSubmit(tensor.name, 0);
    } else if (step[0] == '=') {
      learner.OnDone({ResponseOf(tensors)});
    } else if (step[0] == '!') {
      for (const Request& tensor : tensors) learner.OnDone({ResponseOf({tensor})});
    } else {
      for (const char name : step) learner.OnWaited(std::string(1, name), 0);
    }
  }
}

// The plan that a single rank would adopt; nothing if it has no proposal.
std::optional<Names> Adopted(PlanLearner& learner) {
  const std::optional<Request> proposal = learner.TakeProposal(1, {});
  if (!proposal) return std::nullopt;
  REQUIRE(proposal->operation == Operation::kAdoptPlan);
  REQUIRE_FALSE(learner.TakeProposal(1, {}));
  const Result<TimedPlan> plan = learner.Adopt(*proposal);
  REQUIRE(plan);
  return NamesOf(plan->plan);
}

TEST_CASE("A wait at the end of an iteration does not split buckets", "[control][learner]") {
  PlanLearner learner({});
  Play(learner, {"+abc", "!abc", "abc", "+abc", "!cab", "abc", "+abc"});
  REQUIRE_FALSE(learner.TakeProposal(1, {}));  // the second iteration may continue
  Play(learner, {"!a"});
  REQUIRE(Adopted(learner) == Names{{"c", "a", "b"}});
  REQUIRE_FALSE(learner.at_boundary());
  Play(learner, {"!bc"});
  REQUIRE(learner.at_boundary());
  Play(learner, {"abc", "+abc", "!a"});
  REQUIRE_FALSE(learner.at_boundary());
}

TEST_CASE("The same with an OnDone after the next submissions", "[control][learner]") {
  PlanLearner learner({});
  Play(learner, {"+abc", "=abc", "abc", "+ab", "a", "+c", "b", "c", "+abc", "=ab", "!c", "=abc"});
  // a was waited for before OnDone of it: c, which came after that, needs it.
  REQUIRE(Adopted(learner) == Names{{"a", "b"}, {"c"}});

  PlanLearner other({});
  for (int i = 0; i < 3; ++i) Play(other, {"+ab", "a", "+cd", "=ab", "=cd", "abcd"});
  REQUIRE(Adopted(other) == Names{{"a", "b"}, {"c", "d"}});
}

TEST_CASE("A wait for an earlier tensor of a name that is under way again", "[control][learner]") {
  PlanLearner learner({});
  Play(learner, {"+a"});
  for (int i = 0; i < 3; ++i) Play(learner, {"!a", "+a", "a", "+b", "!b"});
  REQUIRE(Adopted(learner) == Names{{"a"}, {"b"}});
}

TEST_CASE("A plan respects the waits of every rank", "[control][learner]") {
  PlanLearner one({}), other({}), third({});
  for (int i = 0; i < 3; ++i) {
    Play(one, {"+ab", "!a", "a", "+cd", "!bcd"});
    Play(other, {"+abc", "!abc", "c", "+d", "!d"});
    Play(third, {"+abcd", "!abcd", "abcd"});
  }
  const std::vector<Request> proposals = {*one.TakeProposal(1, {}), *other.TakeProposal(1, {}),
                                          *third.TakeProposal(1, {})};
  std::vector<size_t> order = {0, 1, 2};
  do {
    auto agreed = proposals[order[0]];
    for (const size_t rank : order) {
      const auto merged = MergeProposals(agreed.extra, proposals[rank].extra);
      REQUIRE(merged);
      agreed.extra = *merged;
    }
    REQUIRE(NamesOf(one.Adopt(agreed)->plan) == Names{{"a", "b"}, {"c"}, {"d"}});
    REQUIRE(one.Adopt(agreed)->plan.digest() == third.Adopt(agreed)->plan.digest());
  } while (std::next_permutation(order.begin(), order.end()));
  REQUIRE(NamesOf(third.Adopt(proposals[2])->plan) == Names{{"a", "b", "c", "d"}});
}

TEST_CASE("A wait after each tensor gives a bucket for each tensor", "[control][learner]") {
  PlanLearner learner({});
  for (int i = 0; i < 3; ++i) Play(learner, {"+a", "!a", "a", "+b", "!b", "b", "+c", "!c", "c"});
  REQUIRE(Adopted(learner) == Names{{"a"}, {"b"}, {"c"}});
}

TEST_CASE("Tensors that occur once at the beginning are in no plan", "[control][learner]") {
  PlanLearner learner({});
  Play(learner, {"+xy", "=xy", "xy", "+ab", "!ab", "ab", "+ab", "!ab", "ab", "+ab", "!a"});
  REQUIRE_FALSE(learner.TakeProposal(1, {}));
  Play(learner, {"!b", "ab", "+ab", "!a"});
  REQUIRE(Adopted(learner) == Names{{"a", "b"}});
}

TEST_CASE("Iterations that change are not learned", "[control][learner]") {
  PlanLearner learner({});
  Play(learner, {"!ab", "!abc", "!ab", "!ac", "!acb", "!ab"});
  REQUIRE_FALSE(learner.TakeProposal(1, {}));
  Request longer = TensorOf("a", 11);
  for (int i = 0; i < 4; ++i) learner.OnDone({ResponseOf({TensorOf("a", 10 + i)})});
  REQUIRE_FALSE(learner.TakeProposal(1, {}));
  Play(learner, {"!a", "!a", "!a"});
  REQUIRE(Adopted(learner) == Names{{"a"}});
}

TEST_CASE("A response that no plan can hold starts a new iteration", "[control][learner]") {
  Response failed = ResponseOf({TensorOf("x", 1)});
  failed.error = "shapes differ";
  Response joined = ResponseOf({TensorOf("x", 1)});
  joined.tensors[0].operation = Operation::kJoin;
  Response pieces = ResponseOf({TensorOf("x", 1)});
  pieces.tensors[0].operation = Operation::kAllToAll;
  Response gathered = ResponseOf({TensorOf("x", 1)});
  gathered.tensors[0].operation = Operation::kAllGather;
  gathered.rows = {1, 2};
  for (const Response& response : {failed, joined, pieces, gathered}) {
    PlanLearner learner({});
    for (int i = 0; i < 4; ++i) {
      Play(learner, {"!ab"});
      learner.OnDone({response});
      REQUIRE(learner.at_boundary());
    }
    REQUIRE_FALSE(learner.TakeProposal(1, {}));
    Play(learner, {"!ab", "!ab", "!ab"});
    REQUIRE(learner.TakeProposal(1, {}));
    learner.Forget();
    REQUIRE_FALSE(learner.TakeProposal(2, {}));
    Play(learner, {"!ba", "!ba", "!b"});
    REQUIRE(Adopted(learner) == Names{{"b", "a"}});
  }
}

TEST_CASE("Other operations with equal shapes are learned", "[control][learner]") {
  PlanLearner learner({});
  std::vector<Response> responses = {ResponseOf({TensorOf("a", 1), TensorOf("b", 1)})};
  const std::vector<std::pair<std::string, Operation>> others = {{"c", Operation::kBroadcast},
                                                                 {"d", Operation::kBarrier},
                                                                 {"e", Operation::kReduceScatter},
                                                                 {"f", Operation::kAllGather}};
  for (const auto& [name, operation] : others) {
    responses.push_back(ResponseOf({TensorOf(name, 2)}));
    responses.back().tensors[0].operation = operation;
  }
  responses.back().rows = {2, 2, 2};
  for (int i = 0; i < 3; ++i) learner.OnDone(responses);
  REQUIRE(Adopted(learner) == Names{{"a", "b"}, {"c"}, {"d"}, {"e"}, {"f"}});
}

TEST_CASE("After a plan was abandoned another one is learned", "[control][learner]") {
  PlanLearner learner({});
  for (int i = 0; i < 3; ++i) Play(learner, {"+ab", "!ab", "ab"});
  REQUIRE(Adopted(learner) == Names{{"a", "b"}});
  Play(learner, {"+ab", "b"});  // executed by the plan, so OnDone does not come
  learner.Forget();
  REQUIRE(learner.at_boundary());
  for (int i = 0; i < 3; ++i) Play(learner, {"!b", "b", "+a", "!a", "a", "+b"});
  REQUIRE(Adopted(learner) == Names{{"b"}, {"a"}});
}

TEST_CASE("Names that do not repeat are dropped", "[control][learner]") {
  PlanLearner learner({});
  for (int i = 0; i < 70'000; ++i) {
    const std::string name = fmt::format("{}", i);
    learner.OnSubmit(name, 0);
    learner.OnDone({ResponseOf({TensorOf(name, 1)})});
    learner.OnWaited(name, 0);
  }
  REQUIRE_FALSE(learner.TakeProposal(1, {}));
  Play(learner, {"!ab", "!ab", "!ab", "!a"});
  REQUIRE(Adopted(learner) == Names{{"a", "b"}});
}

TEST_CASE("Proposals of different plans do not merge", "[control][learner]") {
  const auto proposal_of = [](const std::string& names, uint64_t epoch, uint64_t threshold,
                              uint64_t tail = 0) {
    PlanOptions options;
    options.fusion.threshold_bytes = threshold;
    options.last_bucket_bytes = tail;
    PlanLearner learner(options);
    for (int i = 0; i < 3; ++i) Play(learner, {"!" + names});
    return learner.TakeProposal(epoch, {})->extra;
  };
  const auto mine = proposal_of("abc", 1, 100);
  REQUIRE(MergeProposals(mine, mine) == mine);
  std::vector<std::vector<std::byte>> others = {
      proposal_of("ab", 1, 100),  proposal_of("acb", 1, 100),     proposal_of("abc", 2, 100),
      proposal_of("abc", 1, 101), proposal_of("abc", 1, 100, 50), {}};
  for (auto end = mine.begin(); end != mine.end(); ++end) others.emplace_back(mine.begin(), end);
  others.push_back(mine);
  others.back().push_back(std::byte{0});
  others.push_back(mine);
  others.back()[0] ^= std::byte{2};  // the version
  others.push_back(mine);
  others.back().back() = std::byte{1};  // needs a tensor far behind it
  others.push_back(mine);
  others.back()[24] = std::byte{1};  // one tensor with times, which are not there
  PlanLearner learner({});
  for (int i = 0; i < 3; ++i) Play(learner, {"!abc"});
  for (const auto& other : others) {
    for (const auto& merged : {MergeProposals(mine, other), MergeProposals(other, mine)}) {
      REQUIRE_FALSE(merged);
      REQUIRE(merged.error().code() == ErrorCode::kInvalidArgument);
    }
    Request agreed;
    agreed.extra = other;
    const Result<TimedPlan> plan = learner.Adopt(agreed);
    REQUIRE_FALSE(plan);
    REQUIRE(plan.error().code() == ErrorCode::kInternal);
  }
}

// Ranks with one program each: tensors of a graph, iteration after iteration, in any order that the
// graph permits, with a wait for each tensor that another one needs, on all ranks or on one. A
// coordinator executes the submitted tensors at first, and later the learned plan.
class LearningJob {
 public:
  LearningJob(Random& random, const RandomGraph& graph, size_t rank_count)
      : random_(random),
        graph_(graph),
        is_ahead_(random.Below(4) == 0),
        options_(),
        done_(graph.tensors.size()) {
    options_.fusion.threshold_bytes = random.Below(2) == 0 ? random.Below(3000) : 64 << 20;
    for (size_t i = 0; i < rank_count; ++i) ranks_.emplace_back(options_, graph.tensors.size());
    const bool is_shared = random.Below(2) == 0;
    for (size_t a = 0; a < done_.size(); ++a) {
      for (size_t b = 0; b < done_.size(); ++b) {
        if (!graph.Needs(a, b)) continue;
        const size_t owner = random.Below(rank_count);
        for (size_t rank = 0; rank < rank_count; ++rank) {
          if (is_shared || rank == owner) ranks_[rank].needs.emplace_back(a, b);
        }
      }
    }
  }

  bool is_ahead() const { return is_ahead_; }
  bool has_plan() const { return plan_.has_value(); }
  const std::optional<Plan>& plan() const { return plan_; }

  std::string Learn(size_t iterations) {
    while (AllDone() < iterations && !is_switched_) {
      if (random_.Below(3) != 0) SubmitOne(ranks_[random_.Below(ranks_.size())]);
      if (random_.Below(3) == 0) DoSome();
      if (random_.Below(3) == 0 || proposals_ != 0) {
        for (LearningRank& rank : ranks_) {
          if (std::string problem = Hear(rank); !problem.empty()) return problem;
        }
      }
      if (std::string problem = Agree(); !problem.empty()) return problem;
    }
    return "";
  }

  // Requires: the ranks have changed to the plan.
  std::string Follow(size_t iterations) {
    const size_t end = AllDone() + iterations;
    size_t idle_count = 0;
    while (AllDone() < end) {
      SubmitOne(ranks_[random_.Below(ranks_.size())]);
      if (!problem_.empty()) return problem_;
      bool is_sent = true;
      for (LearningRank& rank : ranks_) {
        if (rank.step == nullptr) rank.step = rank.walk->ReadyStep();
        is_sent = is_sent && rank.step != nullptr;
      }
      if (is_sent) {
        for (const Request& tensor : plan_->buckets()[ranks_[0].step->bucket].tensors)
          ++done_[graph_.TensorNamed(tensor.name)];
        for (LearningRank& rank : ranks_) {
          rank.step = nullptr;
          rank.walk->Advance();
        }
      }
      idle_count = is_sent ? 0 : idle_count + 1;
      if (idle_count > 100 * ranks_.size() * done_.size() + 1000) return "a deadlock";
    }
    return "";
  }

  // Whether the plan is followed.
  bool is_switched() const { return is_switched_; }
  // Whether it holds all tensors, each of which has been done as often since it was proposed.
  bool is_even() const {
    size_t count = 0;  // a rank that runs ahead may repeat some tensors before others occur
    for (const Bucket& bucket : plan_->buckets()) count += bucket.tensors.size();
    if (count != done_.size()) return false;
    for (size_t t = 0; t < done_.size(); ++t) {
      if (done_[t] - done_at_proposal_[t] != done_[0] - done_at_proposal_[0]) return false;
    }
    return true;
  }

 private:
  struct LearningRank {
    LearningRank(const PlanOptions& options, size_t tensor_count)
        : learner(options), submitted(tensor_count), waited(tensor_count) {}
    PlanLearner learner;
    std::vector<std::pair<size_t, size_t>> needs;  // tensor, one that it needs in this program
    std::vector<size_t> submitted;                 // [tensors] times
    std::vector<size_t> waited;                    // [tensors] iterations that have been waited for
    size_t heard_count = 0;                        // of log_
    std::optional<Request> proposal;
    size_t proposed_at = 0;  // heard_count then
    std::optional<PlanProgress> walk;
    const PlanStep* step = nullptr;
  };

  size_t AllDone() const { return *std::min_element(done_.begin(), done_.end()); }

  bool IsLegal(const LearningRank& rank, size_t t) const {
    const size_t iteration = rank.submitted[t];
    if (iteration != done_[t] || (!is_ahead_ && AllDone() < iteration)) return false;
    return std::all_of(rank.needs.begin(), rank.needs.end(), [&](const auto& need) {
      return need.first != t || done_[need.second] > iteration;
    });
  }

  void WaitFor(LearningRank& rank, size_t t, size_t iterations) {
    if (rank.waited[t] >= iterations) return;
    rank.waited[t] = iterations;
    if (!is_switched_) rank.learner.OnWaited(graph_.tensors[t].name, 0);
  }

  void SubmitOne(LearningRank& rank) {
    const size_t t = random_.Below(done_.size());
    if (!IsLegal(rank, t)) return;
    const size_t iteration = rank.submitted[t]++;
    for (size_t other = 0; other < done_.size() && !is_ahead_; ++other) {
      WaitFor(rank, other, iteration);
    }
    for (const auto& [tensor, other] : rank.needs) {
      if (tensor == t) WaitFor(rank, other, iteration + 1);
    }
    if (!is_switched_) {
      rank.learner.OnSubmit(graph_.tensors[t].name, 0);
    } else if (!rank.walk->Submit(graph_.tensors[t])) {
      problem_ = "the plan refuses " + graph_.tensors[t].name;
    }
  }

  // Executes some of the tensors that all ranks have submitted, one by one or fused.
  void DoSome() {
    std::vector<size_t> ready;
    for (size_t t = 0; t < done_.size(); ++t) {
      const bool is_ready =
          std::all_of(ranks_.begin(), ranks_.end(),
                      [&](const LearningRank& rank) { return rank.submitted[t] > done_[t]; });
      if (is_ready) ready.push_back(t);
    }
    if (ready.empty()) return;
    random_.Shuffle(ready);
    ready.resize(proposals_ != 0 ? 1 : random_.Between(1, ready.size()));
    const bool is_fused = random_.Below(2) == 0;
    for (const size_t t : ready) {
      ++done_[t];
      if (is_fused && t != ready.front() && log_.back().tensors.size() < 3) {
        log_.back().tensors.push_back(graph_.tensors[t]);
      } else {
        log_.push_back(ResponseOf({graph_.tensors[t]}));
        counts_before_.push_back(done_);
        --counts_before_.back()[t];
      }
    }
  }

  std::string Hear(LearningRank& rank) {
    for (; rank.heard_count < log_.size(); ++rank.heard_count) {
      rank.learner.OnDone({log_[rank.heard_count]});
      std::optional<Request> proposal = rank.learner.TakeProposal(5, {});
      if (!proposal) continue;
      if (rank.proposal) return "a second proposal";
      rank.proposal = std::move(proposal);
      rank.proposed_at = rank.heard_count;
      ++proposals_;
    }
    return "";
  }

  std::string Agree() {
    if (proposals_ < ranks_.size()) return "";
    if (!plan_) {
      std::vector<size_t> order(ranks_.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      random_.Shuffle(order);
      Request agreed = *ranks_[order[0]].proposal;
      for (const size_t i : order) {
        if (ranks_[i].proposed_at != ranks_[0].proposed_at) return "proposed at different places";
        auto merged = MergeProposals(agreed.extra, ranks_[i].proposal->extra);
        if (!merged) return merged.error().message();
        agreed.extra = *merged;
      }
      done_at_proposal_ = counts_before_[ranks_[0].proposed_at];
      for (const LearningRank& rank : ranks_) {
        Result<TimedPlan> plan = rank.learner.Adopt(agreed);
        if (!plan) return plan.error().message();
        if (plan_ && plan_->digest() != plan->plan.digest()) return "different plans";
        plan_ = std::move(plan->plan);
      }
    }
    const bool is_boundary = ranks_[0].learner.at_boundary();
    for (LearningRank& rank : ranks_) {
      if (rank.heard_count != log_.size()) return "";
      if (rank.learner.at_boundary() != is_boundary) return "different boundaries";
    }
    return is_boundary ? Switch() : "";
  }

  std::string Switch() {
    is_switched_ = true;
    for (LearningRank& rank : ranks_) {
      rank.walk.emplace(*plan_);
      for (size_t t = 0; t < done_.size(); ++t) {
        if (rank.submitted[t] <= done_[t] || rank.walk->Submit(graph_.tensors[t])) continue;
        if (is_even()) {
          return "the plan refuses what is under way: " + graph_.tensors[t].name;
        }
      }
    }
    return "";
  }

  Random& random_;
  const RandomGraph& graph_;
  bool is_ahead_;  // the next iteration may begin before the last one is complete
  PlanOptions options_;
  std::vector<size_t> done_;  // [tensors] times
  std::vector<Response> log_;
  std::vector<std::vector<size_t>> counts_before_;  // [log_] done_ before it
  std::vector<LearningRank> ranks_;
  size_t proposals_ = 0;
  std::optional<Plan> plan_;
  std::vector<size_t> done_at_proposal_;
  bool is_switched_ = false;
  std::string problem_;
};

TEST_CASE("Ranks learn one plan and can follow it", "[control][learner]") {
  ForSeeds(2'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const RandomGraph graph =
        MakeRandomGraph(random, static_cast<uint32_t>(random.Between(1, 12)), 1);
    if (graph.tensors.empty()) return "";
    LearningJob job(random, graph, random.Between(1, 4));
    if (std::string problem = job.Learn(job.is_ahead() ? 10 : 100); !problem.empty())
      return problem;
    if (!job.is_ahead()) {
      if (!job.is_switched()) return "no plan was learned";
      if (!job.is_even()) return "the change came in the middle";
      if (std::string problem = test::ProblemOf(*job.plan(), graph); !problem.empty())
        return problem;
    }
    return job.is_switched() && job.is_even() ? job.Follow(3) : "";
  });
}

}  // namespace
}  // namespace lmdbio::sync
