// Goal: requests join the groups of a plan, and leave them when a tensor does not come.
#include "lmdbio/sync/rounds/group_driver.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;

Request Named(std::string name) {
  Request request;
  request.name = std::move(name);
  request.shape = {8};
  return request;
}

// A rank alone, whose coordinator needs no exchange.
struct OneRank {
  OneRank() {
    auto made = Coordinator::Create({}, {});
    REQUIRE(made);
    coordinator = std::move(*made);
    driver = std::make_unique<GroupDriver>(
        *coordinator, GroupPatience{.patience = 100ms, .is_waited_for = [this] { return waits; }});
  }

  // Groups the tensors of this name from now on.
  void Follow(const std::vector<std::string>& names) {
    PlanOptions options;
    options.num_groups = 1;
    std::vector<OrderedTensor> tensors;
    for (const std::string& name : names) tensors.push_back({.tensor = Named(name)});
    driver->Follow(Plan::FromOrder(tensors, options, 1));
  }

  std::vector<Response> Round() {
    REQUIRE(!coordinator->BeginRound());
    return coordinator->TakeResponses();
  }

  bool waits = false;  // a thread of the program
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<GroupDriver> driver;
};

std::vector<std::string> NamesOf(const std::vector<Response>& responses) {
  std::vector<std::string> names;
  for (const Response& response : responses) {
    for (const Request& tensor : response.tensors) names.push_back(tensor.name);
  }
  return names;
}
using Names = std::vector<std::string>;

TEST_CASE("Requests without a response join the groups", "[sync][groups]") {
  OneRank rank;
  rank.driver->Submit(Named("a"));
  rank.driver->Submit(Named("x"));
  CHECK(rank.driver->missing_count() == 1);
  rank.Follow({"a", "b", "c"});
  CHECK(rank.driver->is_following());
  CHECK(rank.driver->missing_count() == 2);
  CHECK(NamesOf(rank.Round()) == Names{"x"});
  rank.driver->Submit(Named("b"));
  rank.driver->Submit(Named("c"));
  CHECK(rank.driver->missing_count() == 1);
  const std::vector<Response> grouped = rank.Round();
  CHECK(NamesOf(grouped) == Names{"a", "b", "c"});
  CHECK_FALSE(rank.driver->TakeDone(grouped));
  CHECK(rank.driver->is_following());
}

TEST_CASE("A broken group ends the groups of all requests", "[sync][groups]") {
  OneRank rank;
  rank.Follow({"a", "b", "c"});
  rank.driver->Submit(Named("a"));
  REQUIRE(rank.coordinator->ReleaseHeld());
  rank.driver->Submit(Named("b"));  // it is held in the group, which will not become complete
  const std::vector<Response> alone = rank.Round();
  CHECK(NamesOf(alone) == Names{"a"});
  CHECK(rank.driver->TakeDone(alone));
  CHECK_FALSE(rank.driver->is_following());
  rank.driver->Submit(Named("c"));
  const std::vector<Response> rest = rank.Round();
  CHECK(NamesOf(rest) == Names{"b", "c"});
  for (const Response& response : rest) CHECK(response.tensors.front().group.empty());
}

TEST_CASE("An incomplete group is released after the patience", "[sync][groups]") {
  OneRank rank;
  rank.Follow({"a", "b"});
  rank.driver->Submit(Named("a"));
  const auto begin = GroupDriver::Clock::now();
  const bool is_waited_for = GENERATE(false, true);
  rank.waits = is_waited_for;
  rank.driver->Look(begin + (is_waited_for ? 90ms : 990ms));
  CHECK(rank.driver->missing_count() == 1);
  CHECK_FALSE(rank.coordinator->has_pending());
  // Well behind the patience: the submission may have come a little after `begin`.
  rank.driver->Look(begin + (is_waited_for ? 600ms : 5s));
  CHECK(rank.coordinator->has_pending());
  CHECK(NamesOf(rank.Round()) == Names{"a"});
}

TEST_CASE("A complete group is not released", "[sync][groups]") {
  OneRank rank;
  rank.Follow({"a", "b"});
  rank.driver->Submit(Named("a"));
  rank.driver->Submit(Named("b"));
  rank.waits = true;
  rank.driver->Look(GroupDriver::Clock::now() + 1h);
  const std::vector<Response> responses = rank.Round();
  REQUIRE(responses.size() == 2);
  for (const Response& response : responses) CHECK(IsInLearnedGroup(response.tensors.front()));
}

}  // namespace
}  // namespace lmdbio::sync
