// Goal: a round begins when the pacing demands it, and only then. A rank that waits for peers
// sleeps in a way in which the peers can wake it.
#include "lmdbio/sync/rounds/round_driver.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/sync/rounds/scripted_transport.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;

using Clock = RoundDriver::Clock;

// The driver of the only rank of a job.
struct RoundDriverSetup {
  explicit RoundDriverSetup(const PacingOptions& options = {})
      : coordinator(std::move(*Coordinator::Create({}, transport.job))),
        driver(transport, *coordinator, options, [] { return Status(); }) {}

  void Submit(const std::string& name) {
    Request request;
    request.name = name;
    request.shape = {1};
    coordinator->Submit(std::move(request));
  }

  test::ScriptedTransport transport;
  std::unique_ptr<Coordinator> coordinator;
  RoundDriver driver;
};

TEST_CASE("A round is due when this rank has a request", "[sync][rounds]") {
  RoundDriverSetup setup;
  REQUIRE_FALSE(setup.driver.TakeDue(Clock::now()));
  setup.Submit("a");
  REQUIRE(setup.driver.TakeDue(Clock::now()));
  const auto responses = setup.driver.Run({});
  REQUIRE(responses);
  REQUIRE(responses->size() == 1);
  REQUIRE(responses->front().tensors.front().name == "a");
  REQUIRE_FALSE(setup.driver.TakeDue(Clock::now()));
}

TEST_CASE("A wake-up of a peer makes one round due", "[sync][rounds]") {
  RoundDriverSetup setup;
  setup.transport.is_called = true;
  REQUIRE(setup.driver.TakeDue(Clock::now()));
  REQUIRE_FALSE(setup.driver.TakeDue(Clock::now()));
}

TEST_CASE("A demanded round is due once", "[sync][rounds]") {
  RoundDriverSetup setup;
  setup.driver.DemandRound();
  REQUIRE(setup.driver.TakeDue(Clock::now()));
  REQUIRE_FALSE(setup.driver.TakeDue(Clock::now()));
}

TEST_CASE("An idle rank without wake-ups joins a round after a pause, and wakes its host",
          "[sync][rounds]") {
  RoundDriverSetup setup;
  setup.transport.has_wake_ups = false;
  const auto start = Clock::now();
  setup.driver.NoteProgress(start);
  REQUIRE_FALSE(setup.driver.TakeDue(start + RoundDriver::kIdleRoundPause));
  REQUIRE(setup.transport.ring_count == 0);
  REQUIRE(setup.driver.TakeDue(start + RoundDriver::kIdleRoundPause + 1ms));
  REQUIRE(setup.transport.ring_count == 1);
  setup.driver.NoteProgress(start + 1s);
  REQUIRE_FALSE(setup.driver.TakeDue(start + RoundDriver::kIdleRoundPause + 2ms));
}

TEST_CASE("An idle rank with wake-ups joins no round by itself", "[sync][rounds]") {
  RoundDriverSetup setup;
  REQUIRE_FALSE(setup.driver.TakeDue(Clock::now() + 1h));
  REQUIRE(setup.transport.ring_count == 0);
}

TEST_CASE("A round is always due with a cyclic pacing", "[sync][rounds]") {
  const std::string pacing = GENERATE("cycle", "gs", "nbcs");
  RoundDriverSetup setup({.pacing = pacing, .cycle_time = 2ms});
  REQUIRE(setup.driver.is_cyclic());
  const auto start = Clock::now();
  REQUIRE(setup.driver.AwaitCycle());
  REQUIRE(setup.driver.AwaitCycle());
  REQUIRE(Clock::now() - start >= 2ms);
  REQUIRE(setup.driver.TakeDue(Clock::now()));
  // "gs" agrees on the sleep of each cycle in one exchange.
  REQUIRE(setup.transport.exchange_count == (pacing == "gs" ? 2 : 0));
}

TEST_CASE("A rank sleeps in the way in which its peers can wake it", "[sync][rounds]") {
  RoundDriverSetup setup;
  REQUIRE(setup.driver.idle_wait().limit == RoundDriver::kIdleTick);
  REQUIRE(setup.driver.idle_wait().wake_on == WakeOn::kWakeOrRing);
  setup.transport.has_wake_ups = false;
  REQUIRE(setup.driver.idle_wait().limit == RoundDriver::kIdleTick);

  setup.Submit("a");
  REQUIRE(setup.driver.idle_wait().wake_on == WakeOn::kOrPeerCame);
  REQUIRE(setup.driver.idle_wait().limit < 10ms);  // no wake-up: it tries again soon
  setup.transport.has_wake_ups = true;
  REQUIRE(setup.driver.idle_wait().limit == RoundDriver::kIdleTick);
}

}  // namespace
}  // namespace lmdbio::sync
