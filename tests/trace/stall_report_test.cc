// Goal: each stalled tensor is named once in a report time, a long list is cut, and the limit gives
// an error.

#include <chrono>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/trace/stall_report.h"
#include "tests/support/catch.h"

namespace lmdbio::trace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

StallClock::time_point At(milliseconds time) { return StallClock::time_point(time); }

PendingTensor Tensor(std::string name, uint64_t number, milliseconds since,
                     std::vector<int> missing = {}) {
  return {std::move(name), number, At(since), std::move(missing)};
}

TEST_CASE("StallWatch names tensor, number, time and ranks", "[trace]") {
  StallWatch watch({});
  const std::vector<PendingTensor> pending = {
      Tensor("conv1", 17, seconds(1), {2, 5}), Tensor("fc", 1, seconds(2), {0}),
      Tensor("bias", 4, seconds(0)), Tensor("young", 2, seconds(6), {1})};
  const StallFindings found = watch.Look(pending, At(milliseconds(7200)));
  CHECK(found.status.has_value());
  CHECK(found.lines ==
        std::vector<std::string>{"tensor 'bias' (number 4) has waited 7.2 s for other ranks",
                                 "tensor 'conv1' (number 17) has waited 6.2 s for ranks 2, 5",
                                 "tensor 'fc' (number 1) has waited 5.2 s for rank 0"});
  CHECK(found.reported == std::vector<size_t>{2, 0, 1});
}

TEST_CASE("StallWatch tells of a tensor that is not ready on its stream", "[trace]") {
  StallWatch watch({seconds(5), seconds(9)});
  std::vector<PendingTensor> pending = {Tensor("conv1", 17, seconds(1), {2, 5})};
  pending[0].is_ready = false;
  const StallFindings found = watch.Look(pending, At(milliseconds(10200)));
  const std::string expected =
      "tensor 'conv1' (number 17) has waited 9.2 s: submitted, not ready on its stream";
  CHECK(found.lines == std::vector<std::string>{expected});
  REQUIRE_FALSE(found.status);
  CHECK(found.status.error().message() == expected + ": the limit is 9.0 s");
}

TEST_CASE("StallWatch names no more than some of many ranks", "[trace]") {
  StallWatch watch({});
  std::vector<int> missing;
  for (int rank = 1; rank < 64; ++rank) missing.push_back(rank);
  const std::vector<PendingTensor> pending = {Tensor("t", 1, seconds(0), missing)};
  const StallFindings found = watch.Look(pending, At(seconds(5)));
  REQUIRE(found.lines.size() == 1);
  CHECK(
      found.lines[0].ends_with("for ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 "
                               "and 47 more"));
}

TEST_CASE("StallWatch reports a tensor once in each report time", "[trace]") {
  StallWatch watch({seconds(5), seconds(0)});
  std::vector<PendingTensor> pending = {Tensor("t", 1, seconds(0))};
  std::vector<int> reported_at;
  for (int second = 0; second <= 16; ++second) {
    if (!watch.Look(pending, At(seconds(second))).lines.empty()) reported_at.push_back(second);
  }
  CHECK(reported_at == std::vector<int>{5, 10, 15});
  // The report time of the next submission of the same name starts anew.
  pending = {Tensor("t", 2, seconds(16))};
  CHECK(watch.Look(pending, At(seconds(20))).lines.empty());
  CHECK(watch.Look(pending, At(seconds(21))).lines.size() == 1);
}

TEST_CASE("StallWatch cuts a long list", "[trace]") {
  StallWatch watch({});
  std::vector<PendingTensor> pending;
  for (int i = 0; i < 47; ++i) {
    pending.push_back(Tensor(fmt::format("t{}", i), 1, milliseconds(47 - i)));
  }
  const StallFindings found = watch.Look(pending, At(seconds(6)));
  REQUIRE(found.lines.size() == StallWatch::kLinesMax + 1);
  CHECK(found.lines[0].starts_with("tensor 't46' "));  // the oldest
  CHECK(found.lines.back() == "and 37 more");
  CHECK(found.reported.size() == StallWatch::kLinesMax);
  // The other tensors count as reported and get no line at the next call.
  CHECK(watch.Look(pending, At(seconds(7))).lines.empty());
}

TEST_CASE("StallWatch gives up at the limit", "[trace]") {
  StallWatch watch({seconds(0), seconds(60)});
  const std::vector<PendingTensor> pending = {Tensor("late", 9, seconds(30), {1}),
                                              Tensor("t", 3, seconds(1), {4, 6})};
  CHECK(watch.Look(pending, At(milliseconds(60'999))).status.has_value());
  const StallFindings found = watch.Look(pending, At(seconds(61)));
  CHECK(found.lines.empty());  // reports are off
  REQUIRE_FALSE(found.status.has_value());
  CHECK(found.status.error().code() == ErrorCode::kPeerFailed);
  CHECK(found.status.error().message() ==
        "tensor 't' (number 3) has waited 60.0 s for ranks 4, 6: the limit is 60.0 s");
}

}  // namespace
}  // namespace lmdbio::trace
