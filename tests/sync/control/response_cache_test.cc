#include "lmdbio/sync/control/response_cache.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::sync {
namespace {

using LookupKind = ResponseCache::CacheLookup::LookupKind;

Response ResponseNamed(std::string name, int64_t length = 1) {
  Response response;
  response.tensors.resize(1);
  response.tensors[0].name = std::move(name);
  response.tensors[0].shape = {length};
  return response;
}

ResponseCache::CacheLookup Find(const ResponseCache& cache, const std::vector<Response>& unit) {
  std::vector<Request> requests;
  for (const Response& response : unit) requests.push_back(response.tensors.front());
  return cache.Find(requests);
}

TEST_CASE("ResponseCache keeps recent entries at the lowest positions", "[control][cache]") {
  struct Kept {
    Response response;
    uint32_t position;
  };
  for (uint64_t seed = 0; seed < 50; ++seed) {
    test::Random random(seed);
    const auto capacity = static_cast<uint32_t>(random.Below(6));
    ResponseCache cache(capacity, 0);
    ResponseCache other(capacity, 1);
    std::vector<Kept> model;  // least recently used first
    for (int step = 0; step < 300; ++step) {
      const Response response =
          ResponseNamed(std::string(1, static_cast<char>('a' + random.Below(8))),
                        static_cast<int64_t>(random.Below(2)));
      const auto known = std::ranges::find_if(model, [&](const Kept& kept) {
        return kept.response.tensors[0].name == response.tensors[0].name;
      });
      const ResponseCache::CacheLookup found = Find(cache, {response});
      REQUIRE(found.positions == Find(other, {response}).positions);
      if (known == model.end()) {
        REQUIRE(found.kind == LookupKind::kMiss);
        cache.Put({response});
        other.Put({response});
        if (capacity == 0) continue;
        if (model.size() == capacity) model.erase(model.begin());
        uint32_t lowest = 0;
        while (std::ranges::count(model, lowest, &Kept::position) > 0) ++lowest;
        model.push_back({response, lowest});
        continue;
      }
      REQUIRE(found.positions == std::vector<uint32_t>{known->position});
      const bool is_same = known->response == response;
      REQUIRE((found.kind == (is_same ? LookupKind::kHit : LookupKind::kInvalid)));
      const Kept kept = *known;
      model.erase(known);
      if (is_same) {
        REQUIRE(cache.At(kept.position) == std::vector<Response>{response});
        cache.Touch(kept.position);
        other.Touch(kept.position);
        model.push_back(kept);
      } else {
        cache.Evict(kept.position);
        other.Evict(kept.position);
      }
    }
    REQUIRE(cache.position_count() <= capacity);
    REQUIRE(cache.evicted_count() == other.evicted_count());
  }
}

TEST_CASE("ResponseCache stores a group as one entry", "[control][cache]") {
  ResponseCache cache(2, 0);
  cache.Put({ResponseNamed("a"), ResponseNamed("b")});
  cache.Put({ResponseNamed("c")});
  CHECK(cache.position_count() == 2);
  CHECK(Find(cache, {ResponseNamed("b"), ResponseNamed("a")}).kind == LookupKind::kHit);
  CHECK(Find(cache, {ResponseNamed("a")}).kind == LookupKind::kInvalid);
  CHECK(Find(cache, {ResponseNamed("a"), ResponseNamed("b", 2)}).kind == LookupKind::kInvalid);
  CHECK(Find(cache, {ResponseNamed("a"), ResponseNamed("b"), ResponseNamed("d")}).kind ==
        LookupKind::kInvalid);
  const auto both = Find(cache, {ResponseNamed("c"), ResponseNamed("a")});
  CHECK(both.kind == LookupKind::kInvalid);
  CHECK(both.positions == std::vector<uint32_t>{0, 1});
  cache.Put({ResponseNamed("b"), ResponseNamed("d")});
  CHECK(Find(cache, {ResponseNamed("a")}).kind == LookupKind::kMiss);
  CHECK(Find(cache, {ResponseNamed("c")}).kind == LookupKind::kHit);
}

TEST_CASE("ResponseCache compares a rank's own rows", "[control][cache]") {
  ResponseCache cache(4, 1);
  Response gather = ResponseNamed("g", 3);
  gather.tensors[0].operation = Operation::kAllGather;
  gather.rows = {3, 5};
  cache.Put({gather});
  Response mine = gather;
  CHECK(Find(cache, {mine}).kind == LookupKind::kInvalid);
  mine.tensors[0].shape = {5};
  CHECK(Find(cache, {mine}).kind == LookupKind::kHit);
  mine.tensors[0].shape = {5, 2};
  CHECK(Find(cache, {mine}).kind == LookupKind::kInvalid);
  Response all = ResponseNamed("x", 3);
  all.tensors[0].operation = Operation::kAllToAll;
  all.tensors[0].splits = {1, 2};
  all.rows = {1, 2, 0, 4};
  cache.Put({all});
  CHECK(Find(cache, {all}).kind == LookupKind::kInvalid);
  all.tensors[0].splits = {0, 4};
  all.tensors[0].shape = {4};
  CHECK(Find(cache, {all}).kind == LookupKind::kHit);
  CHECK_FALSE(cache.HoldsWithout(0, 1));
}

TEST_CASE("ResponseCache keeps no errors, barriers, joins and plans", "[control][cache]") {
  ResponseCache cache(4, 0);
  Response error = ResponseNamed("e");
  error.error = "differs";
  cache.Put({error});
  cache.Put({ResponseNamed("a"), error});
  for (const Operation operation : {Operation::kBarrier, Operation::kJoin, Operation::kAdoptPlan}) {
    Response response = ResponseNamed("o");
    response.tensors[0].operation = operation;
    cache.Put({response});
  }
  CHECK(cache.position_count() == 0);
}

TEST_CASE("ResponseCache knows the entries that are valid without a rank", "[control][cache]") {
  ResponseCache cache(8, 0);
  Response sum = ResponseNamed("s");
  Response least = ResponseNamed("m");
  least.tensors[0].reduce_op = ReduceOp::kMin;
  Response broadcast = ResponseNamed("b");
  broadcast.tensors[0].operation = Operation::kBroadcast;
  broadcast.tensors[0].root = 1;
  for (const Response& response : {sum, least, broadcast}) cache.Put({response});
  CHECK(cache.HoldsWithout(0, 0));
  CHECK_FALSE(cache.HoldsWithout(1, 0));
  CHECK(cache.HoldsWithout(2, 0));
  CHECK_FALSE(cache.HoldsWithout(2, 1));
}

}  // namespace
}  // namespace lmdbio::sync
