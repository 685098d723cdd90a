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

  // Groups the tensors of these names from now on.
  void Follow(const std::vector<std::string>& names, uint32_t group_count = 1) {
    PlanOptions options;
    options.num_groups = group_count;
    std::vector<OrderedTensor> tensors;
    for (const std::string& name : names) tensors.push_back({.tensor = Named(name)});
    driver->Follow(Plan::FromOrder(tensors, options, 1));
  }

  // As an engine does that finds nothing else to do.
  void LookUntil(GroupDriver::Clock::time_point end) {
    for (; last_look < end; last_look += 50ms) driver->Look(last_look);
  }

  std::vector<Response> Round() {
    REQUIRE(!coordinator->BeginRound());
    return coordinator->TakeResponses();
  }

  bool waits = false;  // a thread of the program
  GroupDriver::Clock::time_point last_look = GroupDriver::Clock::now();
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
  rank.Follow({"a", "b", "c"});
  CHECK(rank.driver->is_following());
  CHECK(rank.driver->missing_count() == 2);
  CHECK(NamesOf(rank.Round()) == Names{"x"});
  rank.driver->Submit(Named("b"));
  rank.driver->Submit(Named("c"));
  CHECK(rank.driver->missing_count() == 3);  // of the next group
  const std::vector<Response> grouped = rank.Round();
  CHECK(NamesOf(grouped) == Names{"a", "b", "c"});
  CHECK_FALSE(rank.driver->TakeDone(grouped));
  CHECK(rank.driver->is_following());
}

TEST_CASE("A broken group ends the groups of all requests", "[sync][groups]") {
  OneRank rank;
  rank.Follow({"a", "b", "c"});
  rank.driver->Submit(Named("a"));
  rank.waits = true;
  rank.LookUntil(GroupDriver::Clock::now() + 600ms);
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
  // A program that waits for another tensor may wait for a late rank, so that is no reason.
  const bool is_waited_for = GENERATE(false, true);
  const bool has_request = GENERATE(false, true);
  rank.waits = is_waited_for;
  if (has_request) rank.driver->Submit(Named("x"));
  const bool is_stuck = is_waited_for && !has_request;
  rank.LookUntil(rank.last_look + (is_stuck ? 90ms : 990ms));
  CHECK(rank.coordinator->has_pending() == has_request);
  CHECK(rank.driver->missing_count() == 1);  // the group still lacks a tensor
  // Well behind the patience: the submission may have come a little after the first look.
  rank.LookUntil(rank.last_look + (is_stuck ? 500ms : 4s));
  CHECK(NamesOf(rank.Round()) == (has_request ? Names{"x", "a"} : Names{"a"}));
}

TEST_CASE("Other submissions and responses do not keep a group", "[sync][groups]") {
  OneRank rank;
  rank.Follow({"a", "b"});
  rank.driver->Submit(Named("a"));
  rank.waits = true;
  std::vector<Response> responses;
  for (int i = 0; i < 20; ++i) {
    rank.LookUntil(rank.last_look + 50ms);
    rank.driver->Submit(Named("x"));
    for (Response& response : rank.Round()) responses.push_back(std::move(response));
    const bool is_released = NamesOf(responses).back() == "a";
    CHECK(rank.driver->TakeDone({responses.back()}) == is_released);
    if (is_released) break;
  }
  CHECK(NamesOf(responses).back() == "a");
}

TEST_CASE("Time in which the job was stopped does not count", "[sync][groups]") {
  OneRank rank;
  rank.Follow({"a", "b"});
  rank.driver->Submit(Named("a"));
  rank.waits = true;
  rank.LookUntil(rank.last_look + 50ms);
  rank.driver->Look(rank.last_look + 1h);
  CHECK_FALSE(rank.coordinator->has_pending());
}

TEST_CASE("The thread is woken when a round may have an answer", "[sync][groups]") {
  OneRank rank;
  CHECK(rank.driver->missing_count() == 1);
  rank.Follow({"a", "b", "c", "d", "e", "f"}, 2);
  CHECK(rank.driver->missing_count() == 3);
  rank.driver->Submit(Named("a"));
  CHECK(rank.driver->missing_count() == 2);
  rank.driver->Submit(Named("f"));
  rank.driver->Submit(Named("e"));
  CHECK(rank.driver->missing_count() == 1);
  OneRank other;
  other.Follow({"a", "b", "c"}, 2);  // one of them is in no group
  CHECK(other.driver->missing_count() == 1);
}

TEST_CASE("A complete group is not released", "[sync][groups]") {
  OneRank rank;
  rank.Follow({"a", "b"});
  rank.driver->Submit(Named("a"));
  rank.driver->Submit(Named("b"));
  rank.waits = true;
  rank.LookUntil(rank.last_look + 10s);
  const std::vector<Response> responses = rank.Round();
  REQUIRE(responses.size() == 2);
  for (const Response& response : responses) CHECK(IsInLearnedGroup(response.tensors.front()));
}

}  // namespace
}  // namespace lmdbio::sync
