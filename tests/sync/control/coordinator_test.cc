#include "lmdbio/sync/control/coordinator.h"

#include <string>
#include <utility>
#include <vector>

#include "lmdbio/sync/request/message_codec.h"
#include "tests/support/catch.h"
#include "tests/sync/control/control_simulator.h"
#include "tests/sync/control/named_request.h"

namespace lmdbio::sync {
namespace {

using test::Ensemble;
using test::Named;

Request Grouped(std::string name, std::string group, uint32_t size) {
  Request request = Named(std::move(name));
  request.group = std::move(group);
  request.group_size = size;
  return request;
}
Request JoinRequest() {
  Request request = Named("join");
  request.operation = Operation::kJoin;
  return request;
}
std::string NamesOf(const std::vector<Response>& responses) {
  std::string names;
  for (const Response& response : responses) names += response.tensors.front().name + " ";
  return names;
}
CoordinatorOptions Of(std::string kind) {
  CoordinatorOptions options;
  options.kind = std::move(kind);
  return options;
}

TEST_CASE("Coordinator::Create refuses an unknown kind", "[control][coordinator]") {
  const auto none = Coordinator::Create(Of("topo"), {});
  REQUIRE(!none);
  CHECK(none.error().code() == ErrorCode::kInvalidArgument);
  CHECK(none.error().message().find("hierarchical") != std::string::npos);
  CHECK(!Coordinator::Create(Of("cache"), {2, 2, {}}));
  CHECK(!Coordinator::Create(Of("cache"), {0, 2, {0}}));
  CHECK(!Coordinator::Create(Of("cache"), {0, 2, {1, 0}}));
  CHECK(Coordinator::Create(Of("cache"), {1, 3, {0, 1, 0}}));
}

TEST_CASE("Coordinator needs the documented number of exchanges", "[control][coordinator]") {
  const std::vector<int> hosts = {0, 0, 1, 1};
  const auto exchanges_of = [&](const std::string& kind, const std::vector<int>& host_of,
                                int rank) {
    Ensemble ranks(Of(kind), 4, host_of);
    std::vector<uint64_t> counts;
    for (int iteration = 0; iteration < 3; ++iteration) {
      for (int i = 0; i < 4; ++i) {
        for (const char* name : {"a", "b", "c"}) ranks[i].Submit(Named(name));
      }
      CHECK(ranks.Round().size() == 3);
      counts.push_back(ranks[rank].counters().exchange_count);
    }
    return counts;
  };
  using Counts = std::vector<uint64_t>;
  CHECK(exchanges_of("horovod", hosts, 1) == Counts{2, 4, 6});
  CHECK(exchanges_of("cache", hosts, 1) == Counts{3, 4, 5});
  CHECK(exchanges_of("hierarchical", hosts, 0) == Counts{4, 8, 12});
  CHECK(exchanges_of("hierarchical", hosts, 1) == Counts{2, 4, 6});
  CHECK(exchanges_of("hierarchical", {}, 0) == Counts{2, 4, 6});
  CHECK(exchanges_of("hierarchical", {0, 1, 2, 3}, 0) == Counts{2, 4, 6});
}

TEST_CASE("A rank alone needs no exchange", "[control][coordinator]") {
  const std::string kind = GENERATE("horovod", "cache", "hierarchical");
  auto coordinator = Coordinator::Create(Of(kind), {});
  REQUIRE(coordinator);
  for (int i = 0; i < 3; ++i) {
    (*coordinator)->Submit(Named("a"));
    CHECK((*coordinator)->has_pending());
    CHECK(!(*coordinator)->BeginRound());
    CHECK(NamesOf((*coordinator)->TakeResponses()) == "a ");
  }
  (*coordinator)->Submit(JoinRequest());
  CHECK(!(*coordinator)->BeginRound());
  CHECK(NamesOf((*coordinator)->TakeResponses()) == "join ");
  CHECK(!(*coordinator)->has_pending());
  CHECK((*coordinator)->counters().exchange_count == 0);
}

TEST_CASE("CacheCoordinator counts, and evicts once more", "[control][coordinator]") {
  Ensemble ranks(Of("cache"), 2);
  for (int i = 0; i < 3; ++i) {
    for (int rank = 0; rank < 2; ++rank) ranks[rank].Submit(Named("a"));
    ranks.Round();
  }
  CHECK(ranks[1].counters().negotiated_count == 1);
  CHECK(ranks[1].counters().cached_count == 2);
  const uint64_t before = ranks[1].counters().exchange_count;
  Request longer = Named("a");
  longer.shape = {9};
  ranks[1].Submit(longer);
  CHECK(ranks.Round().empty());
  CHECK(ranks[0].counters().exchange_count == before + 4);
  CHECK(ranks[0].counters().evicted_count == 1);
  REQUIRE(ranks[0].Stalls().size() == 1);
  CHECK(ranks[0].Stalls().front().missing_ranks == std::vector<int>{0});
  ranks[0].Submit(Named("a"));
  const std::vector<Response> differ = ranks.Round();
  REQUIRE(differ.size() == 1);
  CHECK(differ.front().error == "tensor 'a': rank 0 has shape [8], rank 1 [9]");
}

TEST_CASE("Coordinator puts a group together when all have it", "[control][coordinator]") {
  const std::string kind = GENERATE("horovod", "cache", "hierarchical");
  Ensemble ranks(Of(kind), 3, {0, 1, 1});
  for (int iteration = 0; iteration < 3; ++iteration) {
    ranks[0].Submit(Grouped("a", "g", 2));
    ranks[0].Submit(Named("x"));
    ranks[0].Submit(Grouped("b", "g", 2));
    ranks[1].Submit(Named("x"));
    for (int rank = 1; rank < 3; ++rank) ranks[rank].Submit(Grouped("b", "g", 2));
    ranks[2].Submit(Named("x"));
    ranks[1].Submit(Grouped("a", "g", 2));
    CHECK(NamesOf(ranks.Round()) == "x ");
    CHECK(ranks.Round().empty());
    ranks[2].Submit(Grouped("a", "g", 2));
    const std::string names = NamesOf(ranks.Round());
    CHECK((names == "a b " || names == "b a "));
  }
}

TEST_CASE("An incomplete group needs no round until it is released", "[control][coordinator]") {
  const std::string kind = GENERATE("horovod", "cache", "hierarchical");
  auto coordinator = Coordinator::Create(Of(kind), {});
  REQUIRE(coordinator);
  (*coordinator)->Submit(Grouped("a", "g", 4));
  (*coordinator)->Submit(Grouped("x", "h", 2));
  CHECK_FALSE((*coordinator)->has_pending());
  CHECK(!(*coordinator)->BeginRound());
  CHECK((*coordinator)->TakeResponses().empty());
  CHECK_FALSE((*coordinator)->ReleaseHeld("a"));
  CHECK((*coordinator)->ReleaseHeld("g"));
  CHECK_FALSE((*coordinator)->ReleaseHeld("g"));
  CHECK((*coordinator)->has_pending());
  CHECK(!(*coordinator)->BeginRound());
  CHECK((*coordinator)->TakeResponses() == std::vector<Response>{{{Named("a")}, "", {}, -1}});
  CHECK_FALSE((*coordinator)->has_pending());
  CHECK((*coordinator)->ReleaseHeld("h"));
  CHECK(!(*coordinator)->BeginRound());
  CHECK((*coordinator)->TakeResponses() == std::vector<Response>{{{Named("x")}, "", {}, -1}});
}

TEST_CASE("A learned group that a rank releases is no group on any rank",
          "[control][coordinator]") {
  const std::string kind = GENERATE("horovod", "cache", "hierarchical");
  const std::string group = GENERATE("lmdbio.group.1.0", "of the program");
  Ensemble ranks(Of(kind), 3, {0, 1, 1});
  for (int iteration = 0; iteration < 2; ++iteration) {
    for (int rank = 0; rank < 3; ++rank) {
      ranks[rank].Submit(Grouped("a", group, 2));
      ranks[rank].Submit(Grouped("b", group, 2));
    }
    CHECK(ranks.Round().size() == 2);
  }
  for (int rank = 0; rank < 3; ++rank) {
    ranks[rank].Submit(Grouped("a", group, 2));
    if (rank != 1) ranks[rank].Submit(Grouped("b", group, 2));
  }
  CHECK(ranks.Round().empty());
  CHECK(ranks[1].ReleaseHeld(group));
  const std::vector<Response> alone = ranks.Round();
  REQUIRE(alone.size() == 1);
  if (group == "of the program") {
    CHECK(alone[0].error.find("group") != std::string::npos);
  } else {
    CHECK(alone[0] == Response{{Named("a")}, "", {}, -1});
  }
}

TEST_CASE("A learned group is one entry of the response cache", "[control][coordinator]") {
  CoordinatorOptions options = Of("cache");
  options.cache_capacity = 2;
  Ensemble ranks(options, 2);
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (int rank = 0; rank < 2; ++rank) {
      for (const char* name : {"a", "b", "c"}) {
        ranks[rank].Submit(Grouped(name, "lmdbio.group.1.0", 3));
      }
      for (const char* name : {"d", "e", "f"}) {
        ranks[rank].Submit(Grouped(name, "lmdbio.group.1.1", 3));
      }
    }
    CHECK(ranks.Round().size() == 6);
  }
  CHECK(ranks[1].counters().negotiated_count == 6);
  CHECK(ranks[1].counters().cached_count == 12);
  CHECK(ranks[1].counters().evicted_count == 0);
}

TEST_CASE("A rank that joins requests the tensors of its incomplete groups",
          "[control][coordinator]") {
  const std::string kind = GENERATE("horovod", "cache", "hierarchical");
  Ensemble ranks(Of(kind), 2);
  ranks[1].Submit(Grouped("a", "lmdbio.group.1.0", 2));
  ranks[1].Submit(JoinRequest());
  CHECK(ranks.Round().empty());
  CHECK_FALSE(ranks[1].ReleaseHeld("lmdbio.group.1.0"));
  ranks[0].Submit(Named("a"));
  CHECK(NamesOf(ranks.Round()) == "a ");
  ranks[0].Submit(Named("a"));
  CHECK(NamesOf(ranks.Round()) == "a ");
  ranks[0].Submit(JoinRequest());
  CHECK(NamesOf(ranks.Round()) == "join ");
  CHECK_FALSE(ranks[1].has_pending());
}

TEST_CASE("Rank 0 learns the ranks that lack a stalled tensor", "[control][coordinator]") {
  const std::string kind = GENERATE("horovod", "cache", "hierarchical");
  Ensemble ranks(Of(kind), 4, {0, 0, 1, 1});
  for (int iteration = 0; iteration < 3; ++iteration) {
    for (const int rank : {0, 3, 1}) ranks[rank].Submit(Named("a"));
    CHECK(ranks.Round().empty());
    for (const int rank : {0, 1, 3}) ranks[rank].MarkStalled({"a", "unknown"});
    CHECK(ranks.Round().empty());
    REQUIRE(ranks[0].Stalls().size() == 1);
    CHECK(ranks[0].Stalls().front().name == "a");
    CHECK(ranks[0].Stalls().front().missing_ranks == std::vector<int>{2});
    CHECK(ranks[1].Stalls().empty());
    ranks[2].Submit(Named("a"));
    CHECK(NamesOf(ranks.Round()) == "a ");
    CHECK(ranks[0].Stalls().empty());
  }
}

TEST_CASE("A request submitted during a round waits for the next", "[control][coordinator]") {
  auto coordinator = Coordinator::Create(Of("horovod"), {1, 2, {}});
  REQUIRE(coordinator);
  REQUIRE((*coordinator)->BeginRound());
  (*coordinator)->Submit(Named("a"));
  REQUIRE((*coordinator)->Continue({}));
  Reply reply;
  reply.bytes = Encode(ResponseList{});
  const auto over = (*coordinator)->Continue(reply);
  REQUIRE(over);
  CHECK(!*over);
  const auto next = (*coordinator)->BeginRound();
  REQUIRE(next);
  const auto asks = DecodeAsks(next->bytes, 2);
  REQUIRE(asks);
  CHECK(asks->asks.size() == 1);
}

TEST_CASE("Coordinator names the rank that sent damage", "[control][coordinator]") {
  auto first = Coordinator::Create(Of("horovod"), {0, 2, {}});
  REQUIRE(first);
  const auto error_of = [&](Reply reply) {
    (*first)->BeginRound();
    const auto next = (*first)->Continue(std::move(reply));
    return next ? std::string("none") : next.error().message();
  };
  const std::vector<std::byte> nothing = Encode(RequestList{});
  CHECK(error_of({{}, {nothing, {}}, {}}).find("rank 1: requests: ") == 0);
  CHECK(error_of({{}, {nothing}, {}}) == "1 messages were gathered from 2 ranks");
  RequestList forged;
  forged.asks.push_back({Named("a"), {0}, 0});
  CHECK(error_of({{}, {nothing, Encode(forged)}, {}}) == "rank 1 requests tensor 'a' for rank 0");
  auto second = Coordinator::Create(Of("cache"), {1, 2, {}});
  REQUIRE(second);
  (*second)->Submit(Named("a"));
  const auto bits = (*second)->BeginRound();
  REQUIRE(bits);
  Reply more;
  more.words = {~uint64_t{0}};
  const auto refused = (*second)->Continue(more);
  REQUIRE(!refused);
  CHECK(refused.error().code() == ErrorCode::kInternal);
}

TEST_CASE("All ranks learn of an end and take back their requests", "[control][coordinator]") {
  const std::string kind = GENERATE("horovod", "cache", "hierarchical");
  Ensemble ranks(Of(kind), 3, {0, 1, 1});
  ranks[0].Submit(Named("b"));
  ranks[0].Submit(Named("a"));
  ranks[2].Submit(Named("a"));
  ranks.Round();
  ranks[0].Submit(Named("c"));
  CHECK(ranks[0].TakePending() == std::vector<Request>{Named("b"), Named("a"), Named("c")});
  CHECK(ranks[1].TakePending().empty());
  CHECK(ranks[2].TakePending() == std::vector<Request>{Named("a")});
  CHECK(ranks[0].Stalls().empty());
  for (int rank = 0; rank < 3; ++rank) {
    CHECK_FALSE(ranks[rank].has_pending());
    ranks[rank].Submit(Named("a"));
  }
  CHECK(NamesOf(ranks.Round()) == "a ");
  ranks[1].End();
  CHECK(ranks[1].has_pending());
  ranks.Round();
  for (int rank = 0; rank < 3; ++rank) CHECK(ranks[rank].is_ended());
  CHECK_FALSE(ranks[1].has_pending());
}

TEST_CASE("The other ranks continue after a rank has joined", "[control][coordinator]") {
  const std::string kind = GENERATE("horovod", "cache", "hierarchical");
  Ensemble ranks(Of(kind), 3, {0, 0, 1});
  Request least = Named("least");
  least.reduce_op = ReduceOp::kMin;
  Request broadcast = Named("broadcast");
  broadcast.operation = Operation::kBroadcast;
  broadcast.root = 1;
  Request gather = Named("gather");
  gather.operation = Operation::kAllGather;
  const std::vector<Request> all = {Named("sum"), least, broadcast, gather};
  const auto submit = [&](int rank) {
    for (const Request& request : all) ranks[rank].Submit(request);
  };
  for (int rank = 0; rank < 3; ++rank) submit(rank);
  CHECK(ranks.Round().size() == 4);
  ranks[1].Submit(JoinRequest());
  submit(0);
  submit(2);
  const std::vector<Response> responses = ranks.Round();
  REQUIRE(responses.size() == 4);
  for (const Response& response : responses) {
    const std::string& name = response.tensors.front().name;
    CHECK(response.error.empty() == (name == "sum" || name == "gather"));
    if (name == "gather") CHECK(response.rows == std::vector<int64_t>{8, 0, 8});
    if (name == "broadcast") {
      CHECK(response.error == "tensor 'broadcast': its root, rank 1, has joined");
    }
  }
  ranks[0].Submit(JoinRequest());
  CHECK(ranks.Round().empty());
  ranks[2].Submit(JoinRequest());
  const std::vector<Response> joined = ranks.Round();
  REQUIRE(joined.size() == 1);
  CHECK(joined.front().last_joined == 2);
  for (int rank = 0; rank < 3; ++rank) submit(rank);
  CHECK(ranks.Round().size() == 4);
}

}  // namespace
}  // namespace lmdbio::sync
