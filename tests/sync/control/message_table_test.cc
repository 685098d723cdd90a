#include "lmdbio/sync/control/message_table.h"

#include <limits>
#include <string>
#include <vector>

#include "lmdbio/sync/control/host_requests.h"
#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

Request Conv() {
  Request request;
  request.name = "conv1";
  request.shape = {64, 3};
  return request;
}

// The response to three ranks for one tensor; the request of rank 1 comes last.
Response Ask3(const Request& rank0, const Request& rank1, const Request& rank2,
              MergeExtra merge = {}) {
  MessageTable table(3, std::move(merge));
  REQUIRE(table.Add({rank2, {2}, 0}));
  REQUIRE(table.Add({rank0, {0}, 0}));
  REQUIRE(table.TakeReady().empty());
  REQUIRE(table.Add({rank1, {1}, 0}));
  const std::vector<Response> responses = table.TakeReady();
  REQUIRE(responses.size() == 1);
  REQUIRE(table.Stalls().empty());
  return responses.front();
}

TEST_CASE("MessageTable names the difference and the ranks", "[control][table]") {
  Request other = Conv();
  CHECK(Ask3(Conv(), Conv(), Conv()).error.empty());
  other.shape = {64, 4};
  CHECK(Ask3(Conv(), other, other).error ==
        "tensor 'conv1': rank 0 has shape [64, 3], ranks 1, 2 [64, 4]");
  CHECK(Ask3(Conv(), Conv(), other).error ==
        "tensor 'conv1': ranks 0, 1 have shape [64, 3], rank 2 [64, 4]");
  other.shape = {192};
  CHECK(Ask3(Conv(), other, Conv()).error ==
        "tensor 'conv1': ranks 0, 2 have shape [64, 3], rank 1 [192]");
  other = Conv();
  other.type = DataType::kInt32;
  CHECK(Ask3(other, Conv(), Conv()).error ==
        "tensor 'conv1': rank 0 has type int32, ranks 1, 2 float32");
  other = Conv();
  other.operation = Operation::kBroadcast;
  CHECK(Ask3(Conv(), Conv(), other).error ==
        "tensor 'conv1': ranks 0, 1 have operation allreduce, rank 2 broadcast");
  other = Conv();
  other.reduce_op = ReduceOp::kMax;
  CHECK(Ask3(Conv(), Conv(), other).error.find("reduction sum, rank 2 max") != std::string::npos);
  other = Conv();
  other.prescale = 0.1;
  CHECK(Ask3(Conv(), Conv(), other).error.find("prescale 1, rank 2 0.1") != std::string::npos);
  other = Conv();
  other.postscale = 0.1;
  CHECK(Ask3(Conv(), Conv(), other).error.find("postscale 1, rank 2 0.1") != std::string::npos);
  other = Conv();
  other.group = "g";
  CHECK(Ask3(Conv(), Conv(), other).error.find("group '', rank 2 'g'") != std::string::npos);
}

TEST_CASE("MessageTable refuses an invalid request on all ranks", "[control][table]") {
  Request request = Conv();
  request.operation = Operation::kBroadcast;
  request.root = 3;
  CHECK(Ask3(request, request, request).error ==
        "tensor 'conv1': ranks 0, 1, 2: root 3 is out of range; expected 0 to 2");
  request = Conv();
  request.type = DataType::kInt64;
  request.postscale = std::numeric_limits<double>::infinity();
  CHECK(Ask3(request, request, request).error ==
        "tensor 'conv1': ranks 0, 1, 2: postscale inf is invalid for int64; expected a finite "
        "number");
  request = Conv();
  request.shape = {4, -1};
  CHECK(Ask3(Conv(), request, Conv()).error ==
        "tensor 'conv1': rank 1: shape [4, -1] is invalid: a negative dimension, or too many "
        "elements");
  request.shape = {int64_t{1} << 30, int64_t{1} << 30, 0};
  CHECK_FALSE(Ask3(request, request, request).error.empty());
  request = Conv();
  request.operation = Operation::kAllToAll;
  request.shape = {6, 3};
  for (const std::vector<int64_t>& splits :
       {std::vector<int64_t>{}, {6, 0}, {3, 3, 3}, {-1, 7, 0}, {1, 1, 1}}) {
    request.splits = splits;
    CHECK_FALSE(Ask3(request, request, request).error.empty());
  }
  request.splits = {1, 2, 3};
  CHECK(Ask3(request, request, request).error.empty());
}

TEST_CASE("MessageTable collects rows", "[control][table]") {
  Request requests[3] = {Conv(), Conv(), Conv()};
  for (int rank = 0; rank < 3; ++rank) {
    requests[rank].operation = Operation::kAllGather;
    requests[rank].shape[0] = 10 * rank;
  }
  const Response gather = Ask3(requests[0], requests[1], requests[2]);
  CHECK(gather.rows == std::vector<int64_t>{0, 10, 20});
  CHECK(gather.tensors.front() == requests[0]);
  requests[1].shape[1] = 4;
  CHECK(Ask3(requests[0], requests[1], requests[2]).error ==
        "tensor 'conv1': ranks 0, 2 have shape [any, 3], rank 1 [any, 4]");
  for (int rank = 0; rank < 3; ++rank) {
    requests[rank] = Conv();
    requests[rank].operation = Operation::kAllToAll;
    requests[rank].splits = {rank, 1, 0};
    requests[rank].shape[0] = rank + 1;
  }
  CHECK(Ask3(requests[0], requests[1], requests[2]).rows ==
        std::vector<int64_t>{0, 1, 0, 1, 1, 0, 2, 1, 0});
}

TEST_CASE("MessageTable merges plans in the order of ranks", "[control][table]") {
  Request requests[3] = {Conv(), Conv(), Conv()};
  for (int rank = 0; rank < 3; ++rank) {
    requests[rank].operation = Operation::kAdoptPlan;
    requests[rank].extra = {std::byte(rank)};
  }
  const MergeExtra join = [](Bytes a, Bytes b) -> Result<std::vector<std::byte>> {
    std::vector<std::byte> both(a.begin(), a.end());
    both.insert(both.end(), b.begin(), b.end());
    return both;
  };
  const Response merged = Ask3(requests[0], requests[1], requests[2], join);
  CHECK(merged.error.empty());
  CHECK(merged.tensors.front().extra ==
        std::vector<std::byte>{std::byte{0}, std::byte{1}, std::byte{2}});
  const MergeExtra refuse = [](Bytes, Bytes) -> Result<std::vector<std::byte>> {
    return Fail(ErrorCode::kInvalidArgument, "other plans");
  };
  CHECK(Ask3(requests[0], requests[1], requests[2], refuse).error ==
        "tensor 'conv1': rank 1: other plans");
  CHECK(Ask3(requests[0], requests[0], requests[0], refuse).error.empty());
  CHECK_FALSE(Ask3(requests[0], requests[1], requests[2]).error.empty());
}

TEST_CASE("MessageTable names a rank that repeats a request", "[control][table]") {
  MessageTable table(3, {});
  REQUIRE(table.Add({Conv(), {0, 2}, 0}));
  const Status twice = table.Add({Conv(), {1, 2}, 0});
  REQUIRE(!twice);
  CHECK(twice.error().code() == ErrorCode::kInternal);
  CHECK(twice.error().message() == "rank 2 requests tensor 'conv1' twice");
}

TEST_CASE("MessageTable names a rank with an invalid join", "[control][table]") {
  MessageTable table(3, {});
  Request join;
  join.name = "join";
  join.operation = Operation::kJoin;
  REQUIRE(table.Add({join, {0, 2}, 0}));
  join.shape = {-1};
  const Status invalid = table.Add({join, {1}, 0});
  REQUIRE(!invalid);
  CHECK(invalid.error().code() == ErrorCode::kInternal);
  CHECK(
      invalid.error().message() ==
      "rank 1: an invalid join: shape [-1] is invalid: a negative dimension, or too many elements");
}

TEST_CASE("MessageTable names the ranks without a request", "[control][table]") {
  MessageTable table(4, {});
  REQUIRE(table.Add({Conv(), {1}, 0}));
  REQUIRE(table.Stalls().size() == 1);
  CHECK(table.Stalls().front().name == "conv1");
  CHECK(table.Stalls().front().missing_ranks == std::vector<int>{0, 2, 3});
  Request join;
  join.name = "join";
  join.operation = Operation::kJoin;
  REQUIRE(table.Add({join, {0, 3}, 0}));
  CHECK(table.TakeReady().empty());
  CHECK(table.Stalls().front().missing_ranks == std::vector<int>{2});
  REQUIRE(table.Add({join, {2}, 0}));
  CHECK(table.TakeReady().size() == 1);
  REQUIRE(table.Add({join, {1}, 0}));
  const std::vector<Response> joined = table.TakeReady();
  REQUIRE(joined.size() == 1);
  CHECK(joined.front().last_joined == 1);
  REQUIRE(table.Add({Conv(), {1}, 0}));
  CHECK(table.TakeReady().empty());
}

TEST_CASE("HostRequests sends requests that its host agrees on, and forwarded ones",
          "[control][table]") {
  HostRequests table(5, {1, 3, 4});
  REQUIRE(table.Add({Conv(), {3}, 0}));
  REQUIRE(table.Add({Conv(), {1}, 0}));
  CHECK(table.TakeReady().empty());
  Request other = Conv();
  other.shape = {1};
  REQUIRE(table.Add({other, {4}, 0}));
  const std::vector<RequestEntry> asks = table.TakeReady();
  REQUIRE(asks.size() == 2);
  CHECK(asks[0] == RequestEntry{Conv(), {1, 3}, 0});
  CHECK(asks[1] == RequestEntry{other, {4}, 0});
  REQUIRE(table.Add({Conv(), {3}, 0}));
  table.Forward("conv1");
  CHECK(table.TakeReady().size() == 1);
  REQUIRE(table.Add({Conv(), {1}, 0}));
  CHECK(table.TakeReady().size() == 1);
  Response response;
  response.tensors = {Conv()};
  table.Answered(response);
  REQUIRE(table.Add({Conv(), {1}, 0}));
  CHECK(table.TakeReady().empty());
}

}  // namespace
}  // namespace lmdbio::sync
