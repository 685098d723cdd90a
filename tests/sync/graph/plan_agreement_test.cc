// Goal: ranks propose, adopt and abandon plans by the responses alone; an abandoned plan delays the
// next proposal; an agreed plan waits for a boundary between two iterations.
#include "lmdbio/sync/graph/plan_agreement.h"

#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/sync/graph/plan_cases.h"

namespace lmdbio::sync {
namespace {

using test::Names;
using test::NamesOf;
using test::TensorOf;
using Source = PlanAgreement::Source;

std::vector<Response> ResponsesFor(const std::string& names) {
  std::vector<Response> responses;
  for (const char name : names) {
    responses.emplace_back().tensors = {TensorOf(std::string(1, name), 10)};
  }
  return responses;
}

// One iteration of a program that waits at its end.
void Iterate(PlanAgreement& agreement, const std::string& names) {
  for (const char name : names) agreement.OnSubmit(std::string(1, name), 0);
  agreement.OnDone(ResponsesFor(names));
  for (const char name : names) agreement.OnWaited(std::string(1, name), 0);
}

std::vector<OrderedTensor> OrderOf(const std::string& names) {
  std::vector<OrderedTensor> order;
  for (const char name : names) order.emplace_back().tensor = TensorOf(std::string(1, name), 10);
  for (OrderedTensor& one : order) one.needs_up_to = -1;
  return order;
}

// The iterations that pass before the next proposal.
int IterationsBeforeProposal(PlanAgreement& agreement, const std::string& names) {
  for (int count = 0; count < 100; ++count) {
    if (agreement.TakeProposal({})) return count;
    agreement.OnDone(ResponsesFor(names));
  }
  return -1;
}

TEST_CASE("Without a source there is never a plan", "[control][agreement]") {
  PlanAgreement agreement({}, Source::kNone);
  REQUIRE_FALSE(agreement.is_learning());
  for (int i = 0; i < 5; ++i) Iterate(agreement, "ab");
  REQUIRE_FALSE(agreement.TakeProposal({}));
  REQUIRE_FALSE(*agreement.TakePlan());
}

TEST_CASE("Two equal iterations become a proposal, and a plan once all ranks agree",
          "[control][agreement]") {
  PlanAgreement agreement({}, Source::kLearned);
  REQUIRE(agreement.is_learning());
  Iterate(agreement, "ab");
  REQUIRE_FALSE(agreement.TakeProposal({}));
  Iterate(agreement, "ab");
  Iterate(agreement, "ab");
  const std::optional<Request> proposal = agreement.TakeProposal({});
  REQUIRE(proposal);
  REQUIRE(proposal->operation == Operation::kAdoptPlan);
  REQUIRE_FALSE(agreement.TakeProposal({}));
  REQUIRE_FALSE(*agreement.TakePlan());  // not agreed yet

  agreement.OnAgreed(*proposal);
  agreement.OnDone(ResponsesFor("a"));  // in the middle of an iteration
  REQUIRE_FALSE(*agreement.TakePlan());
  agreement.OnDone(ResponsesFor("b"));
  const auto plan = agreement.TakePlan();
  REQUIRE(plan);
  REQUIRE(*plan);
  REQUIRE(NamesOf((*plan)->plan) == Names{{"a", "b"}});
  REQUIRE((*plan)->plan.epoch() == 1);
  REQUIRE_FALSE(*agreement.TakePlan());
}

TEST_CASE("An agreed plan without a boundary is dropped, and another one is learned",
          "[control][agreement]") {
  PlanAgreement agreement({}, Source::kLearned);
  for (int i = 0; i < 3; ++i) Iterate(agreement, "ab");
  const std::optional<Request> proposal = agreement.TakeProposal({});
  REQUIRE(proposal);
  agreement.OnAgreed(*proposal);
  for (uint64_t i = 0; i < PlanAgreement::kAgreedAgeMax; ++i) {
    agreement.OnDone(ResponsesFor("c"));
    REQUIRE_FALSE(*agreement.TakePlan());
  }
  for (int i = 0; i < 3; ++i) Iterate(agreement, "ab");
  const std::optional<Request> next = agreement.TakeProposal({});
  REQUIRE(next);
  REQUIRE(next->name == "lmdbio.plan.2");
}

TEST_CASE("Bytes that are no proposal are an error, and learning goes on", "[control][agreement]") {
  PlanAgreement agreement({}, Source::kLearned);
  for (int i = 0; i < 3; ++i) Iterate(agreement, "ab");
  std::optional<Request> proposal = agreement.TakeProposal({});
  REQUIRE(proposal);
  proposal->extra.resize(3);
  agreement.OnAgreed(*proposal);
  REQUIRE_FALSE(agreement.TakePlan());
  for (int i = 0; i < 3; ++i) Iterate(agreement, "ab");
  REQUIRE(agreement.TakeProposal({}));
}

TEST_CASE("A given order is proposed at once, in place of a learned one", "[control][agreement]") {
  PlanAgreement agreement({}, Source::kLearned);
  const Request proposal = agreement.FollowOrder(OrderOf("ab"));
  REQUIRE_FALSE(agreement.is_learning());
  REQUIRE(proposal.name == "lmdbio.plan.1");
  REQUIRE_FALSE(agreement.TakeProposal({}));
  agreement.OnAgreed(proposal);
  agreement.OnDone({});
  const auto plan = agreement.TakePlan();
  REQUIRE(plan);
  REQUIRE(*plan);
  REQUIRE(NamesOf((*plan)->plan) == Names{{"a", "b"}});

  // Other orders have other digests.
  PlanAgreement other({}, Source::kNone);
  REQUIRE(other.FollowOrder(OrderOf("ba")).extra != proposal.extra);
}

TEST_CASE("Each abandoned plan doubles the pause before the next proposal",
          "[control][agreement]") {
  PlanAgreement agreement({}, Source::kNone);
  static_cast<void>(agreement.FollowOrder(OrderOf("ab")));
  for (const int pause : {2, 4, 8, 16, 16}) {
    agreement.OnAbandoned({});
    REQUIRE(IterationsBeforeProposal(agreement, "ab") == pause);
  }
}

TEST_CASE("Buckets of an abandoned iteration count for its boundary", "[control][agreement]") {
  PlanAgreement agreement({}, Source::kNone);
  Request proposal = agreement.FollowOrder(OrderOf("ab"));
  agreement.OnAbandoned(ResponsesFor("a"));
  agreement.OnAgreed(proposal);
  REQUIRE_FALSE(*agreement.TakePlan());
  agreement.OnDone(ResponsesFor("b"));  // the rest of that iteration
  REQUIRE(*agreement.TakePlan());
}

}  // namespace
}  // namespace lmdbio::sync
