// Goal: a call that blocks can be given up at any time, and what it uses lives until it returns.
#include "lmdbio/sync/over_library/call_thread.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;

Status Tired() { return Fail(ErrorCode::kPeerFailed, "rank 3: it is tired"); }

TEST_CASE("CallThread makes calls in a thread of its own, one behind the other", "[call_thread]") {
  CallThread calls;
  std::vector<std::thread::id> ids;
  for (int i = 0; i < 3; ++i) {
    const Status done = calls.Run(
        [&ids, i]() -> Status {
          ids.push_back(std::this_thread::get_id());
          if (i == 1) return Fail(ErrorCode::kInternal, "it fails");
          return {};
        },
        [] { return Status(); });
    CHECK(done.has_value() == (i != 1));
    if (!done) CHECK(done.error().message() == "it fails");
  }
  REQUIRE(ids.size() == 3);
  CHECK(ids[0] != std::this_thread::get_id());
  CHECK((ids[0] == ids[1] && ids[1] == ids[2]));
}

TEST_CASE("A call is destroyed before the result is there", "[call_thread]") {
  CallThread calls;
  for (int i = 0; i < 100; ++i) {
    auto memory = std::make_shared<int>(i);
    const std::weak_ptr<int> watched = memory;
    CHECK(calls.Run([memory = std::move(memory)] { return Status(); }, [] { return Status(); }));
    CHECK(watched.expired());
  }
}

TEST_CASE("A call that waits goes on while the check finds nothing", "[call_thread]") {
  CallThread calls;
  std::atomic<int> checks = 0;
  const Status done = calls.Run(
      [&checks]() -> Status {
        while (checks.load() < 2) std::this_thread::sleep_for(1ms);
        return {};
      },
      [&checks] {
        ++checks;
        return Status();
      });
  CHECK(done);
  CHECK(checks.load() >= 2);
}

TEST_CASE("A call that is given up keeps what it uses until it returns", "[call_thread]") {
  auto memory = std::make_shared<std::atomic<bool>>(false);
  const std::weak_ptr<std::atomic<bool>> watched = memory;
  std::atomic<bool>& may_return = *memory;
  {
    CallThread calls;
    const Status given_up = calls.Run(
        [memory = std::move(memory)]() -> Status {
          while (!memory->load()) std::this_thread::sleep_for(1ms);
          return {};
        },
        Tired);
    REQUIRE_FALSE(given_up);
    CHECK(given_up.error().message() == "rank 3: it is tired");
    bool is_called = false;
    const Status later = calls.Run(
        [&is_called] {
          is_called = true;
          return Status();
        },
        [] { return Status(); });
    REQUIRE_FALSE(later);
    CHECK(later.error().code() == ErrorCode::kPeerFailed);
    CHECK(later.error().message() == "an earlier call was given up, because a rank has failed");
    CHECK_FALSE(is_called);
  }
  CHECK_FALSE(watched.expired());
  may_return.store(true);
  const auto limit = std::chrono::steady_clock::now() + 60s;
  while (!watched.expired() && std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(watched.expired());
}

TEST_CASE("A child of fork() destroys a CallThread without its thread", "[call_thread]") {
  auto calls = std::make_unique<CallThread>();
  test::CheckInChild([&] {
    calls.reset();
    return test::Verdict::kRight;
  });
  CHECK(calls->Run([] { return Status(); }, [] { return Status(); }));
}

}  // namespace
}  // namespace lmdbio::sync
