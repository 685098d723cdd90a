#include "lmdbio/sync/request/message_codec.h"

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::sync {
namespace {

constexpr int kRanks = 4;

std::string AnyText(test::Random& random) { return random.BytesOf(random.Below(20)); }

Request AnyRequest(test::Random& random) {
  Request request;
  request.name = "t" + AnyText(random);
  request.operation = static_cast<Operation>(1 + random.Below(8));
  request.type = static_cast<DataType>(1 + random.Below(6));
  request.reduce_op = static_cast<ReduceOp>(1 + random.Below(4));
  request.prescale = static_cast<double>(random.Below(100)) / 7;
  request.postscale = IsFloating(request.type) ? -std::numeric_limits<double>::infinity() : -0.5;
  for (uint64_t i = random.Below(5); i > 0; --i) {
    request.shape.push_back(static_cast<int64_t>(random.Below(9)));
  }
  if (request.operation == Operation::kAllToAll) {
    request.shape = {6, 2};
    request.splits = {1, 2, 3, 0};
  }
  request.root = static_cast<int32_t>(random.Below(kRanks));
  if (random.Below(2) == 0) {
    request.group = AnyText(random);
    request.group_size = static_cast<uint32_t>(random.Below(9));
  }
  request.extra.assign(random.Below(30), std::byte(random.Next()));
  return request;
}

RequestList AnyAsks(test::Random& random) {
  RequestList list;
  list.is_ending = random.Below(2) == 0;
  for (uint64_t i = random.Below(5); i > 0; --i) {
    RequestEntry ask{AnyRequest(random), {}, random.Next()};
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      if (random.Below(2) == 0) ask.ranks.push_back(rank);
    }
    if (ask.ranks.empty()) ask.ranks.push_back(3);
    list.asks.push_back(std::move(ask));
  }
  for (uint64_t i = random.Below(3); i > 0; --i) list.stalled.push_back(AnyText(random));
  return list;
}

ResponseList AnyResponses(test::Random& random) {
  ResponseList list;
  list.is_ended = random.Below(2) == 0;
  for (uint64_t i = random.Below(5); i > 0; --i) {
    Response response;
    response.tensors.push_back(AnyRequest(random));
    const Operation operation = response.tensors.front().operation;
    if (random.Below(3) == 0) {
      response.error = "e" + AnyText(random);
    } else {
      if (operation == Operation::kJoin) response.last_joined = 2;
      if (operation == Operation::kAllGather) response.rows.assign(kRanks, 5);
      if (operation == Operation::kAllToAll) response.rows.assign(kRanks * kRanks, 7);
      if (operation == Operation::kAllReduce) response.tensors.push_back(response.tensors.front());
    }
    list.responses.push_back(std::move(response));
  }
  return list;
}

Result<RequestList> Decode(const std::vector<std::byte>& bytes, const RequestList*) {
  return DecodeAsks(bytes, kRanks);
}
Result<ResponseList> Decode(const std::vector<std::byte>& bytes, const ResponseList*) {
  return DecodeResponses(bytes, kRanks);
}

// Checks that a message decodes to itself, that a truncated message is refused, and that a changed
// message is refused or encodes to the changed bytes.
template <typename List>
void Check(const List& list, test::Random& random) {
  const std::vector<std::byte> bytes = Encode(list);
  const auto decoded = Decode(bytes, &list);
  REQUIRE(decoded);
  REQUIRE(*decoded == list);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::vector<std::byte> part(bytes.begin(),
                                      bytes.begin() + static_cast<ptrdiff_t>(length));
    const auto refused = Decode(part, &list);
    REQUIRE(!refused);
    REQUIRE(refused.error().code() == ErrorCode::kInternal);
  }
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> changed = bytes;
    for (uint64_t count = 1 + random.Below(3); count > 0; --count) {
      changed[random.Below(changed.size())] = std::byte(random.Below(4) == 0 ? 255 : random.Next());
    }
    if (random.Below(8) == 0) changed.push_back(std::byte{0});
    if (const auto result = Decode(changed, &list)) REQUIRE(Encode(*result) == changed);
  }
}

TEST_CASE("DecodeAsks returns the encoded requests and refuses damage", "[control][codec]") {
  test::Random random(1);
  for (int i = 0; i < 60; ++i) Check(AnyAsks(random), random);
}

TEST_CASE("DecodeResponses returns the encoded responses and refuses damage", "[control][codec]") {
  test::Random random(2);
  for (int i = 0; i < 60; ++i) Check(AnyResponses(random), random);
}

TEST_CASE("DecodeAsks refuses requests that no rank sends", "[control][codec]") {
  const auto error_of = [](const RequestList& list) {
    const auto decoded = DecodeAsks(Encode(list), kRanks);
    return decoded ? std::string("none") : decoded.error().message();
  };
  Request request;
  request.name = "a";
  CHECK(error_of({false, {{request, {1}, 0}}, {}}) == "none");
  CHECK(error_of({false, {{request, {}, 0}}, {}}).find("no rank") != std::string::npos);
  CHECK(error_of({false, {{request, {4}, 0}}, {}}).find("ranks") != std::string::npos);
  CHECK(error_of({false, {{request, {-1}, 0}}, {}}).find("ranks") != std::string::npos);
  CHECK(error_of({false, {{request, {2, 2}, 0}}, {}}).find("ranks") != std::string::npos);
  request.operation = static_cast<Operation>(9);
  CHECK(error_of({false, {{request, {1}, 0}}, {}}).find("operation") != std::string::npos);
}

TEST_CASE("DecodeResponses refuses responses that rank 0 never sends", "[control][codec]") {
  const auto is_good = [](const Response& response) {
    return DecodeResponses(Encode(ResponseList{false, {response}}), kRanks).has_value();
  };
  Response response;
  CHECK_FALSE(is_good(response));
  response.tensors.resize(1);
  response.tensors[0].name = "a";
  CHECK(is_good(response));
  response.rows = {1, 2, 3, 4};
  CHECK_FALSE(is_good(response));
  response.tensors[0].operation = Operation::kAllGather;
  CHECK(is_good(response));
  response.rows[2] = -1;
  CHECK_FALSE(is_good(response));
  response.rows[2] = 1;
  response.tensors[0].shape = {int64_t{1} << 40, int64_t{1} << 40};
  CHECK_FALSE(is_good(response));
  response.error = "too large";
  CHECK(is_good(response));
}

}  // namespace
}  // namespace lmdbio::sync
