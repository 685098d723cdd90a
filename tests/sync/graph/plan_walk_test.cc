// Goal: ranks that follow a plan of slices and halves reduce each element of each tensor once in
// each iteration, wherever they abandon the plan or join, and do not deadlock.
//
// Method: all ranks in one thread, in random order. Each has a random program that waits where the
// plan permits it. A step is made when all ranks are in it; after an abandoned plan tensors are
// reduced whole, as in rounds, until the plan returns at the end of an iteration. Oracle: rank r
// brings the value 2^r, and each reduction adds kReduced, or its second half does. So the result of
// an element tells how often it was reduced, and with which ranks.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/sync/graph/plan.h"
#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::Random;
using test::TensorOf;

constexpr uint64_t kReduced = uint64_t{1} << 20;
constexpr size_t kNever = ~size_t{0};
constexpr size_t kTurnsMax = 1'000'000;  // a run takes some thousands

// A random plan, with a place for each of its tensors.
struct WalkCase {
  std::vector<Request> tensors;   // of the plan, and one that is not in it
  std::vector<size_t> bucket_of;  // [tensors of the plan]
  Plan plan;
  std::vector<size_t> first_step;  // [buckets]
  std::vector<size_t> last_step;   // [buckets]

  size_t extra() const { return bucket_of.size(); }
  // Whether a program may wait for one tensor before it submits the other one.
  bool MayWait(size_t before, size_t after) const {
    return last_step[bucket_of[before]] < first_step[bucket_of[after]];
  }
};

// steps  of a bucket, in descending order
void Halve(std::vector<PlanStep>& steps) {
  std::vector<PlanStep> reductions = steps;
  for (PlanStep& step : steps) step.half = PlanStep::StepHalf::kGather;
  for (PlanStep& step : reductions) step.half = PlanStep::StepHalf::kReduce;
  steps.insert(steps.end(), reductions.begin(), reductions.end());
}

WalkCase MakeCase(Random& random) {
  WalkCase made;
  std::vector<Bucket> buckets(random.Between(1, 5));
  std::vector<std::vector<PlanStep>> left(buckets.size());  // in descending order
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    const uint64_t tensor_count = random.Below(3) == 0 ? random.Between(2, 3) : 1;
    for (uint64_t i = 0; i < tensor_count; ++i) {
      made.tensors.push_back(TensorOf(fmt::format("t{}", made.tensors.size()),
                                      static_cast<int64_t>(random.Below(13))));
      made.bucket_of.push_back(bucket);
      buckets[bucket].tensors.push_back(made.tensors.back());
    }
    const uint64_t count = made.tensors.back().element_count();
    const bool is_whole = tensor_count > 1 || count == 0 || random.Below(3) == 0;
    if (is_whole) left[bucket] = {{.bucket = bucket}};
    for (uint64_t end = count; end > 0 && !is_whole;) {
      const uint64_t slice = random.Between(1, end);
      end -= slice;
      left[bucket].push_back({bucket, end, slice});
    }
    if (random.Below(3) == 0) Halve(left[bucket]);
  }
  std::vector<PlanStep> steps;
  made.first_step.assign(buckets.size(), kNever);
  made.last_step.resize(buckets.size());
  for (const bool is_mixed = random.Below(4) != 0; !left.empty();) {
    const size_t chosen = is_mixed ? random.Below(left.size()) : 0;
    const PlanStep step = left[chosen].back();
    left[chosen].pop_back();
    if (left[chosen].empty()) left.erase(left.begin() + static_cast<ptrdiff_t>(chosen));
    made.first_step[step.bucket] = std::min(made.first_step[step.bucket], steps.size());
    made.last_step[step.bucket] = steps.size();
    steps.push_back(step);
  }
  made.tensors.push_back(TensorOf("extra", 5));
  made.plan = Plan::FromSteps(std::move(buckets), std::move(steps), random.Next());
  return made;
}

// A line of a program: submits a tensor, or waits for one.
struct ProgramLine {
  bool is_wait = false;
  size_t tensor = 0;
};

class WalkingRanks {
 public:
  WalkingRanks(const WalkCase& given, Random& random, size_t rank_count, size_t iterations)
      : given_(given), random_(random), iterations_(iterations), done_(given.tensors.size()) {
    for (size_t i = 0; i < iterations; ++i) has_extra_.push_back(random.Below(4) == 0 ? 1 : 0);
    for (size_t i = 0; i < rank_count; ++i) {
      WalkingRank& rank = ranks_.emplace_back();
      rank.submitted.resize(given.tensors.size());
      rank.values.resize(given.tensors.size());
      const bool may_join = i > 0 && random.Below(4) == 0;
      rank.iteration_end = may_join ? random.Below(iterations + 1) : iterations;
    }
    is_open_.resize(given.plan.buckets().size());
    Follow();
  }

  std::string Run() {
    for (size_t turn = 0; !IsOver() && problem_.empty(); ++turn) {
      WalkingRank& rank = ranks_[random_.Below(ranks_.size())];
      if (random_.Below(2) == 0) {
        GoOn(rank);
      } else {
        Drive(rank);
      }
      Meet();
      if (turn > kTurnsMax) return "a deadlock";
    }
    return problem_;
  }

  size_t abandoned_count() const { return abandoned_count_; }

 private:
  struct WalkingRank {
    std::optional<PlanProgress> walk;
    bool must_decline = false;
    bool is_abandoned = false;  // and steps of the plan are left
    bool is_calling = false;    // in the step, or declining it if that is null
    const PlanStep* step = nullptr;
    std::vector<Request> left_over;             // submitted, and not in the plan
    std::set<size_t> requested;                 // in rounds
    std::vector<size_t> submitted;              // [tensors] times
    std::vector<std::vector<uint64_t>> values;  // [tensors][elements]
    std::vector<ProgramLine> program;           // of the iteration
    size_t line = 0;
    size_t iteration = 0;
    size_t iteration_end = 0;
    bool has_joined = false;
  };

  bool IsOver() const {
    return std::ranges::all_of(ranks_, [this](const WalkingRank& rank) {
      if (rank.has_joined) return true;
      if (rank.iteration < iterations_ || rank.line < rank.program.size()) return false;
      return rank.submitted == done_;
    });
  }

  void Report(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }

  size_t IndexOf(const Request& request) const {
    return static_cast<size_t>(std::ranges::find(given_.tensors, request) - given_.tensors.begin());
  }

  // --- Programs

  // A wait makes all lines behind it depend on the tensor.
  void BeginProgram(WalkingRank& rank) {
    std::vector<size_t> order;
    for (size_t t = 0; t < given_.extra(); ++t) order.push_back(t);
    if (random_.Below(2) == 0) random_.Shuffle(order);
    if (has_extra_[rank.iteration] != 0) {
      order.insert(order.begin() + static_cast<ptrdiff_t>(random_.Below(order.size() + 1)),
                   given_.extra());
    }
    rank.program.clear();
    rank.line = 0;
    for (size_t at = 0; at < order.size(); ++at) {
      for (size_t before = 0; before < at; ++before) {
        const bool may_wait =
            std::all_of(order.begin() + static_cast<ptrdiff_t>(at), order.end(), [&](size_t after) {
              return order[before] != given_.extra() && after != given_.extra() &&
                     given_.MayWait(order[before], after);
            });
        if (may_wait && random_.Below(2) == 0) rank.program.push_back({true, order[before]});
      }
      rank.program.push_back({false, order[at]});
    }
    ++rank.iteration;
  }

  // A line of the program, if it need not wait. A tensor cannot be submitted before it is done. A
  // rank joins when all of its tensors are done.
  void GoOn(WalkingRank& rank) {
    if (rank.line < rank.program.size()) {
      const ProgramLine line = rank.program[rank.line];
      if (rank.submitted[line.tensor] != done_[line.tensor]) return;
      ++rank.line;
      if (!line.is_wait) Submit(rank, line.tensor);
    } else if (rank.iteration < rank.iteration_end) {
      BeginProgram(rank);
    } else if (rank.iteration < iterations_ && rank.submitted == done_) {
      rank.has_joined = true;
      rank.must_decline = true;
    }
  }

  void Submit(WalkingRank& rank, size_t tensor) {
    const auto number = static_cast<size_t>(&rank - ranks_.data());
    ++rank.submitted[tensor];
    rank.values[tensor].assign(given_.tensors[tensor].element_count(), uint64_t{1} << number);
    if (!rank.walk) {
      rank.requested.insert(tensor);
    } else if (!rank.walk->Submit(given_.tensors[tensor])) {
      if (!rank.is_abandoned && tensor != given_.extra()) Report("refused");
      rank.left_over.push_back(given_.tensors[tensor]);
      rank.must_decline = true;
    } else if (rank.walk->Submit(given_.tensors[tensor])) {
      Report("taken twice");
    }
  }

  // --- The plan

  void Follow() {
    for (WalkingRank& rank : ranks_) {
      rank.walk.emplace(Plan(given_.plan));
      rank.must_decline = rank.has_joined;
      rank.is_abandoned = false;
      rank.left_over.clear();
      for (const size_t tensor : std::exchange(rank.requested, {})) {
        if (rank.walk->Submit(given_.tensors[tensor])) continue;
        if (tensor != given_.extra()) Report("not taken over");
        rank.left_over.push_back(given_.tensors[tensor]);
        rank.must_decline = true;
      }
    }
    next_step_ = 0;
  }

  // As PlanDriver::Step, without the call.
  void Drive(WalkingRank& rank) {
    if (!rank.walk || rank.is_calling) return;
    CheckProgress(rank);
    const PlanStep* const step = rank.walk->ReadyStep();
    if (step == nullptr && !rank.is_abandoned && random_.Below(200) == 0) rank.must_decline = true;
    const bool declines = rank.must_decline && rank.walk->is_at_begin();
    if (!declines && step == nullptr) return;
    rank.is_calling = true;
    rank.step = declines ? nullptr : step;
  }

  // Compares the tensors that the rank lacks for the next step, and those for later ones.
  void CheckProgress(const WalkingRank& rank) {
    if (rank.is_abandoned) return;
    const PlanStep& next = given_.plan.steps()[next_step_];
    size_t missing = 0, pending = 0;
    for (size_t t = 0; t < given_.extra(); ++t) {
      const bool is_here = rank.submitted[t] > done_[t];
      const bool is_begun = is_open_[given_.bucket_of[t]] != 0;
      if (given_.bucket_of[t] == next.bucket && !is_here) ++missing;
      if (is_here && !is_begun) ++pending;
    }
    if (rank.walk->next_step() != next_step_) Report("which is next");
    if (rank.walk->is_at_begin() != next.begins_bucket()) Report("at a begin or not");
    if (rank.walk->missing_count() != missing) Report("what is missing");
    if ((rank.walk->ReadyStep() != nullptr) != (missing == 0)) Report("ready or not");
    if (rank.walk->has_pending() != (pending > 0)) Report("whether something is pending");
  }

  // Makes what all ranks are ready for.
  void Meet() {
    if (!ranks_[0].walk) return Round();
    if (!std::ranges::all_of(ranks_, &WalkingRank::is_calling)) return;
    const bool is_declined =
        std::ranges::any_of(ranks_, [](const WalkingRank& rank) { return rank.step == nullptr; });
    for (WalkingRank& rank : ranks_) rank.is_calling = false;
    if (is_declined) {
      Abandon();
    } else {
      MakeStep();
    }
  }

  void MakeStep() {
    const PlanStep step = *ranks_[0].step;
    for (WalkingRank& rank : ranks_) {
      if (*rank.step != step) return Report("ranks make different steps");
      rank.walk->Advance();
    }
    const bool is_whole = step.count == 0;
    for (size_t t = 0; t < given_.extra(); ++t) {
      if (given_.bucket_of[t] != step.bucket) continue;
      Reduce(t, step.begin, is_whole ? given_.tensors[t].element_count() : step.count, step.half);
      if (problem_.empty() && given_.plan.Completes(step)) Finish(t);
    }
    is_open_[step.bucket] = given_.plan.Completes(step) ? 0 : 1;
    ++next_step_;
    if (!ranks_[0].is_abandoned) {
      next_step_ %= given_.plan.steps().size();
    } else if (ranks_[0].walk->ReadyStep() == nullptr) {
      ReturnToRounds();
    }
  }

  void Abandon() {
    if (!given_.plan.steps()[next_step_].begins_bucket()) return Report("declined amid a bucket");
    ++abandoned_count_;
    std::vector<size_t> begun;
    for (size_t i = 0; i < next_step_; ++i) {
      const PlanStep& step = given_.plan.steps()[i];
      if (step.begins_bucket()) begun.push_back(step.bucket);
    }
    for (WalkingRank& rank : ranks_) {
      std::vector<Request> expected;
      for (size_t i = 0; i < given_.plan.steps().size(); ++i) {
        const PlanStep& step = given_.plan.steps()[(next_step_ + i) % given_.plan.steps().size()];
        if (!step.begins_bucket() || is_open_[step.bucket] != 0) continue;
        for (const Request& tensor : given_.plan.buckets()[step.bucket].tensors) {
          const size_t t = IndexOf(tensor);
          if (rank.submitted[t] > done_[t]) expected.push_back(tensor);
        }
      }
      const std::vector<Request> taken = rank.walk->TakePending();
      if (taken != expected) return Report("what was taken back");
      if (rank.walk->begun_buckets() != begun) return Report("which buckets were begun");
      for (const Request& request : taken) rank.requested.insert(IndexOf(request));
      rank.is_abandoned = true;
    }
    const bool are_steps_left = ranks_[0].walk->ReadyStep() != nullptr;
    if (are_steps_left != (std::ranges::count(is_open_, 1) > 0)) Report("whether steps are left");
    if (!are_steps_left) ReturnToRounds();
  }

  void ReturnToRounds() {
    for (WalkingRank& rank : ranks_) {
      if (rank.walk->ReadyStep() != nullptr) Report("a rank has steps left");
      if (rank.walk->has_pending() || !rank.walk->TakePending().empty()) Report("taken twice");
      rank.walk.reset();
      for (const Request& request : rank.left_over) rank.requested.insert(IndexOf(request));
    }
    if (std::ranges::count(is_open_, 1) > 0) Report("half reduced");
  }

  // --- Rounds

  void Round() {
    const auto plan_end = done_.begin() + static_cast<ptrdiff_t>(given_.extra());
    const bool is_boundary =
        std::all_of(done_.begin(), plan_end, [this](size_t count) { return count == done_[0]; });
    if (is_boundary && random_.Below(3) == 0) return Follow();
    std::vector<size_t> ready;
    for (size_t t = 0; t < given_.tensors.size(); ++t) {
      const bool is_ready = std::ranges::all_of(ranks_, [t](const WalkingRank& rank) {
        return rank.has_joined || rank.requested.contains(t);
      });
      if (is_ready) ready.push_back(t);
    }
    if (ready.empty()) return;
    const size_t tensor = ready[random_.Below(ready.size())];
    Reduce(tensor, 0, given_.tensors[tensor].element_count(), PlanStep::StepHalf::kBoth);
    Finish(tensor);
    for (WalkingRank& rank : ranks_) rank.requested.erase(tensor);
  }

  // --- Values

  // The first half adds the values, and the second one the mark.
  void Reduce(size_t tensor, uint64_t begin, uint64_t count, PlanStep::StepHalf half) {
    using enum PlanStep::StepHalf;
    for (uint64_t i = begin; i < begin + count; ++i) {
      uint64_t sum = half == kReduce ? 0 : kReduced;
      for (WalkingRank& rank : ranks_) {
        if (rank.has_joined) continue;
        if (rank.submitted[tensor] != done_[tensor] + 1) return Report("a rank lacks the tensor");
        if (half == kGather) {
          sum = kReduced + rank.values[tensor][i];
        } else {
          sum += rank.values[tensor][i];
        }
      }
      for (WalkingRank& rank : ranks_) {
        if (!rank.has_joined) rank.values[tensor][i] = sum;
      }
    }
  }

  void Finish(size_t tensor) {
    uint64_t expected = kReduced;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].has_joined) expected += uint64_t{1} << i;
    }
    for (const WalkingRank& rank : ranks_) {
      if (rank.has_joined) continue;
      if (rank.submitted[tensor] != done_[tensor] + 1) return Report("done without a rank");
      for (const uint64_t value : rank.values[tensor]) {
        if (value != expected) return Report("not reduced once with all ranks");
      }
    }
    ++done_[tensor];
    for (WalkingRank& rank : ranks_) {
      if (rank.has_joined) rank.submitted[tensor] = done_[tensor];
    }
  }

  const WalkCase& given_;
  Random& random_;
  size_t iterations_;
  std::vector<uint8_t> has_extra_;  // [iterations]
  std::vector<size_t> done_;        // [tensors] times, on all ranks
  std::vector<uint8_t> is_open_;    // [buckets] begun, and not complete
  std::vector<WalkingRank> ranks_;
  size_t next_step_ = 0;
  size_t abandoned_count_ = 0;
  std::string problem_;
};

TEST_CASE("Ranks reduce each element once, wherever they abandon a plan of slices",
          "[control][plan][steps]") {
  size_t abandoned_count = 0;
  ForSeeds(3'000, [&](uint64_t seed) -> std::string {
    Random random(seed);
    const WalkCase given = MakeCase(random);
    WalkingRanks ranks(given, random, random.Between(1, 5), random.Between(1, 4));
    const std::string problem = ranks.Run();
    abandoned_count += ranks.abandoned_count();
    return problem;
  });
  CHECK(abandoned_count > 0);
}

}  // namespace
}  // namespace lmdbio::sync
