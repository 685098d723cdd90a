#include "lmdbio/sync/over_device/event_wait.h"

#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST_CASE("LookUntil returns at the first look that succeeds", "[event_wait]") {
  int looks = 0;
  const auto third = [&]() -> Result<bool> { return ++looks == 3; };
  CHECK(LookUntil(third, Clock::time_point::max(), {}) == true);
  CHECK(looks == 3);
}

TEST_CASE("LookUntil looks once without time, and gives up after the limit", "[event_wait]") {
  int looks = 0;
  const auto never = [&]() -> Result<bool> {
    ++looks;
    return false;
  };
  CHECK(LookUntil(never, Clock::now(), {}) == false);
  CHECK(looks == 1);
  const Clock::time_point until = Clock::now() + 5ms;
  CHECK(LookUntil(never, until, {}) == false);
  CHECK(Clock::now() >= until);
  CHECK(looks > 2);
}

TEST_CASE("An error of a look or of a check ends the wait", "[event_wait]") {
  const auto lost = []() -> Result<bool> { return Fail(ErrorCode::kInternal, "lost"); };
  const auto first = LookUntil(lost, Clock::time_point::max(), {});
  REQUIRE_FALSE(first);
  CHECK(first.error().message() == "lost");
  int checks = 0;
  const auto second = LookUntil([]() -> Result<bool> { return false; }, Clock::time_point::max(),
                                [&]() -> Status {
                                  if (++checks < 2) return {};
                                  return Fail(ErrorCode::kPeerFailed, "gone");
                                });
  REQUIRE_FALSE(second);
  CHECK(second.error().message() == "gone");
  CHECK(checks == 2);
}

}  // namespace
}  // namespace lmdbio::sync
