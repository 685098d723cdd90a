// Goal: the ranks learn when their programs submit and need each tensor, and propose a plan by time
// after the same response on every rank.
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/sync/graph/plan_learner.h"
#include "lmdbio/sync/graph/plan_proposal.h"
#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using test::TensorOf;

const std::vector<TransferSample> kSamples = {{1024, 1000}, {1 << 20, 1'000'000}};

PlanOptions Timed() {
  PlanOptions options;
  options.order = PlanOptions::PlanOrder::kDue;
  return options;
}

// A program that computes 10 ns before each of "c", "b", "a" and submits it, and then needs "a",
// "b", "c" in turn, with 5 ns of computing between two of them. All its waits take no time of it.
class TimedProgram {
 public:
  explicit TimedProgram(PlanLearner& learner) : learner_(learner) {}

  // slow_ns  more in this iteration
  void Iterate(int64_t slow_ns = 0) {
    for (const char* const name : {"c", "b", "a"}) {
      now_ns_ += 10 + slow_ns;
      learner_.OnSubmit(name, now_ns_);
    }
    Response response;
    for (const char* const name : {"c", "b", "a"}) response.tensors.push_back(TensorOf(name, 10));
    learner_.OnDone({response});
    for (const char* const name : {"a", "b", "c"}) {
      learner_.OnWaited(name, now_ns_);
      now_ns_ += 5;
    }
  }

 private:
  PlanLearner& learner_;
  int64_t now_ns_ = 1000;
};

// The number of iterations after which a proposal comes; it is left in `proposal`.
int IterationsUntil(PlanLearner& learner, TimedProgram& program, std::optional<Request>& proposal,
                    const std::vector<TransferSample>& samples = kSamples) {
  for (int count = 1; count <= 50; ++count) {
    program.Iterate();
    proposal = learner.TakeProposal(1, samples);
    if (proposal) return count;
  }
  return 0;
}

TEST_CASE("A plan by time is proposed when the times of five iterations are known",
          "[timed_learner]") {
  PlanLearner learner(Timed());
  TimedProgram program(learner);
  program.Iterate(1000);  // the first iterations of a program are slow
  program.Iterate(100);
  std::optional<Request> proposal;
  REQUIRE(IterationsUntil(learner, program, proposal) == 9);
  const auto read = ReadProposal(proposal->extra);
  REQUIRE(read);
  CHECK(read->times == std::vector<TensorTimes>{{0, 30}, {10, 25}, {20, 20}});
  CHECK(read->length_ns == 45);
  CHECK(read->samples == kSamples);
  const auto adopted = learner.Adopt(*proposal);
  REQUIRE(adopted);
  CHECK(adopted->obstacle.empty());
  CHECK(adopted->forecast);
  REQUIRE_FALSE(learner.TakeProposal(2, {}));
}

TEST_CASE("A proposal tells by how much iterations differ", "[timed_learner]") {
  PlanLearner learner(Timed());
  TimedProgram program(learner);
  std::optional<Request> proposal;
  for (int count = 0; count < 50 && !proposal; ++count) {
    program.Iterate(3 * (count % 2));  // 48 ns or 51, from submission to submission
    proposal = learner.TakeProposal(1, kSamples);
  }
  REQUIRE(proposal);
  const auto read = ReadProposal(proposal->extra);
  REQUIRE(read);
  CHECK(read->length_ns == 48);
  CHECK(read->spread_ns == 3);
  const auto adopted = learner.Adopt(*proposal);
  REQUIRE(adopted);
  REQUIRE(adopted->forecast);
  CHECK(adopted->forecast->spread_ns == 3);
}

// The first tensor of an iteration is done before the others are submitted. Their next submissions
// are of the same iteration, from which no times are taken yet.
TEST_CASE("Times begin with a whole iteration", "[timed_learner]") {
  PlanLearner learner(Timed());
  int64_t now_ns = 0;
  std::optional<Request> proposal;
  for (int i = 0; i < 20 && !proposal; ++i) {
    for (const char* const name : {"c", "b", "a"}) {
      now_ns += 10;
      learner.OnSubmit(name, now_ns);
      Response response;
      response.tensors.push_back(TensorOf(name, 10));
      learner.OnDone({response});
      if (!proposal) proposal = learner.TakeProposal(1, kSamples);
    }
    for (const char* const name : {"a", "b", "c"}) learner.OnWaited(name, now_ns += 5);
  }
  REQUIRE(proposal);
  const auto read = ReadProposal(proposal->extra);
  REQUIRE(read);
  CHECK(read->times == std::vector<TensorTimes>{{0, 35}, {10, 30}, {20, 25}});
  CHECK(read->length_ns == 45);
}

TEST_CASE("A plan in the order of arrival needs no times", "[timed_learner]") {
  PlanLearner learner({});
  TimedProgram program(learner);
  std::optional<Request> proposal;
  REQUIRE(IterationsUntil(learner, program, proposal) == 3);
  const auto read = ReadProposal(proposal->extra);
  REQUIRE(read);
  CHECK(read->times.empty());
  CHECK(read->samples.empty());
  CHECK_FALSE(learner.Adopt(*proposal)->forecast);
}

TEST_CASE("Times that are not steady are not proposed", "[timed_learner]") {
  PlanLearner learner(Timed());
  TimedProgram program(learner);
  std::optional<Request> proposal;
  for (int64_t i = 0; i < 20 && !proposal; ++i) {
    program.Iterate(100 << i);
    proposal = learner.TakeProposal(1, kSamples);
  }
  REQUIRE(proposal);
  CHECK(ReadProposal(proposal->extra)->times.empty());
  const auto adopted = learner.Adopt(*proposal);
  REQUIRE(adopted);
  CHECK(adopted->obstacle.find("differ too much") != std::string::npos);
}

TEST_CASE("An iteration with other tensors begins the times anew", "[timed_learner]") {
  PlanLearner learner(Timed());
  TimedProgram program(learner);
  for (int i = 0; i < 5; ++i) program.Iterate();
  Response other;
  other.tensors.push_back(TensorOf("c", 11));
  learner.OnDone({other});
  std::optional<Request> proposal;
  REQUIRE(IterationsUntil(learner, program, proposal) == 11);  // as many as from the start
}

TEST_CASE("After an abandoned plan the times are taken anew", "[timed_learner]") {
  PlanLearner learner(Timed());
  TimedProgram program(learner);
  std::optional<Request> proposal;
  const int count = IterationsUntil(learner, program, proposal);
  REQUIRE(count == 11);
  learner.Forget();
  REQUIRE(IterationsUntil(learner, program, proposal) == count);
  CHECK(ReadProposal(proposal->extra)->times.size() == 3);
}

}  // namespace
}  // namespace lmdbio::sync
