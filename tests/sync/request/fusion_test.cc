// Goal: fused tensors are of one kind, fit the buffer and keep their order, and the result equals
// that of a plain search.
#include "lmdbio/sync/request/fusion.h"

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
using test::Random;
using test::TensorOf;

Response ResponseOf(Request tensor) {
  Response response;
  response.tensors.push_back(std::move(tensor));
  return response;
}

std::vector<std::vector<std::string>> NamesOf(const std::vector<Response>& responses) {
  std::vector<std::vector<std::string>> names;
  for (const Response& response : responses) {
    names.emplace_back();
    for (const Request& tensor : response.tensors) names.back().push_back(tensor.name);
  }
  return names;
}

TEST_CASE("Only like tensors may be fused", "[control][fusion]") {
  const Request tensor = TensorOf("a", 8);
  REQUIRE(MayFuse(tensor, TensorOf("b", 100)));
  const auto differs = [&](auto change) {
    Request other = tensor;
    change(other);
    return !MayFuse(tensor, other) && !MayFuse(other, tensor);
  };
  REQUIRE(differs([](Request& other) { other.type = DataType::kFloat64; }));
  REQUIRE(differs([](Request& other) { other.reduce_op = ReduceOp::kMax; }));
  REQUIRE(differs([](Request& other) { other.prescale = 0.5; }));
  REQUIRE(differs([](Request& other) { other.postscale = 0.5; }));
  REQUIRE(differs([](Request& other) { other.operation = Operation::kBroadcast; }));
  Request broadcast = tensor;
  broadcast.operation = Operation::kBroadcast;
  REQUIRE_FALSE(MayFuse(broadcast, broadcast));
}

TEST_CASE("Tensors of a buffer begin at whole cache lines", "[control][fusion]") {
  Request scalar = TensorOf("scalar", 1);
  scalar.shape.clear();
  const std::vector<Request> tensors = {TensorOf("a", 1), TensorOf("b", 16), TensorOf("none", 0),
                                        TensorOf("c", 17), scalar};
  const FusedOffsets places = PlacesOf(tensors);
  REQUIRE(places.offsets == std::vector<uint64_t>{0, 64, 128, 128, 256});
  REQUIRE(places.size_bytes == 320);
  REQUIRE(PlacesOf({}).size_bytes == 0);
}

TEST_CASE("Fusing skips tensors that do not fit and keeps positions", "[control][fusion]") {
  Request broadcast = TensorOf("broadcast", 16);
  broadcast.operation = Operation::kBroadcast;
  Response failed = ResponseOf(TensorOf("failed", 16));
  failed.error = "shapes differ";
  const std::vector<Response> responses = {
      ResponseOf(TensorOf("a", 32)),   failed,
      ResponseOf(TensorOf("big", 48)), ResponseOf(broadcast),
      ResponseOf(TensorOf("b", 16)),   ResponseOf(TensorOf("c", 16)),
      ResponseOf(TensorOf("d", 16))};
  REQUIRE(NamesOf(Fuse(responses, {256})) ==
          std::vector<std::vector<std::string>>{
              {"a", "b", "c"}, {"failed"}, {"big", "d"}, {"broadcast"}});
  REQUIRE(Fuse(responses, {256})[1].error == "shapes differ");
  REQUIRE(Fuse(responses, {0}) == responses);
  REQUIRE(Fuse({}, {256}).empty());
}

TEST_CASE("A group is never split", "[control][fusion]") {
  const auto grouped = [](const std::string& name, int64_t count) {
    Request tensor = TensorOf(name, count);
    tensor.group = "g";
    tensor.group_size = 3;
    return ResponseOf(tensor);
  };
  Response of_other_type = grouped("g3", 16);
  of_other_type.tensors[0].type = DataType::kFloat64;
  const std::vector<Response> responses = {ResponseOf(TensorOf("a", 16)), grouped("g1", 1000),
                                           ResponseOf(TensorOf("b", 16)), of_other_type,
                                           grouped("g2", 1000)};
  for (const uint64_t threshold : {0U, 64U, 128U, 1U << 20}) {
    const auto names = NamesOf(Fuse(responses, {threshold}));
    CAPTURE(threshold);
    const bool stand_together =
        std::any_of(names.begin(), names.end(), [](const std::vector<std::string>& buffer) {
          const auto first = std::find(buffer.begin(), buffer.end(), "g1");
          return first != buffer.end() && std::next(first) != buffer.end() &&
                 *std::next(first) == "g2";
        });
    REQUIRE(stand_together);
    REQUIRE(std::count(names.begin(), names.end(), std::vector<std::string>{"g3"}) == 1);
  }
}

// The search of Romero and Horovod: the first remaining tensor takes all later ones that fit.
std::vector<std::vector<std::string>> Searched(std::vector<Response> left, uint64_t threshold) {
  std::vector<std::vector<std::string>> names;
  while (!left.empty()) {
    const Response first = left.front();
    left.erase(left.begin());
    names.push_back({first.tensors[0].name});
    if (!first.error.empty()) continue;
    uint64_t bytes = FusedBytes(first.tensors[0]);
    for (auto next = left.begin(); next != left.end();) {
      const uint64_t more = FusedBytes(next->tensors[0]);
      const bool is_fused = next->error.empty() && threshold > 0 && bytes + more <= threshold &&
                            MayFuse(first.tensors[0], next->tensors[0]);
      if (is_fused) {
        bytes += more;
        names.back().push_back(next->tensors[0].name);
      }
      next = is_fused ? left.erase(next) : next + 1;
    }
  }
  return names;
}

TEST_CASE("Fusing agrees with a plain search", "[control][fusion]") {
  ForSeeds(4'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const uint64_t threshold = random.Below(4) == 0 ? random.Below(65) : random.Below(2000);
    std::vector<Response> responses;
    for (uint64_t i = random.Below(40); i > 0; --i) {
      Request tensor = TensorOf(fmt::format("t{}", i), static_cast<int64_t>(random.Below(300)));
      if (random.Below(5) == 0) tensor.type = DataType::kFloat64;
      if (random.Below(8) == 0) tensor.operation = Operation::kBroadcast;
      responses.push_back(ResponseOf(tensor));
      if (random.Below(10) == 0) responses.back().error = "no";
    }
    const std::vector<Response> fused = Fuse(responses, {threshold});
    if (NamesOf(fused) != Searched(responses, threshold)) return "the search finds other buffers";
    return Fuse(fused, {threshold}) == fused ? "" : "fused again it differs";
  });
}

}  // namespace
}  // namespace lmdbio::sync
