// Goal: an overdue tensor leads to wake-ups and to a request to rank 0, then to a report, then to
// an error; time in which the process was stopped does not count.
#include "lmdbio/sync/engine/stall_monitor.h"

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/sync/engine/engine_parts.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;

using Clock = StallMonitor::Clock;

struct StallMonitorSetup {
  explicit StallMonitorSetup(const trace::StallLimits& limits)
      : monitor(limits, {parts.tasks, *parts.coordinator, parts.transport, parts.tracer},
                [this](const std::string& line) { lines.push_back(line); }) {}

  void Submit(const std::string& name) { monitor.OnSubmitted(*parts.Submit(name)); }
  // Looks every 500 ms, as an idle helper thread does, until so long after the start.
  Status LookUntil(Clock::duration end) {
    Status status;
    for (; status && at <= end; at += 500ms) status = monitor.Look(start + at);
    return status;
  }

  test::EnginePartsOfOneRank parts;
  std::vector<std::string> lines;
  StallMonitor monitor;
  Clock::time_point start = Clock::now();
  Clock::duration at = 500ms;
};

TEST_CASE("An overdue tensor wakes the peers, and its name is taken once", "[sync][stall]") {
  StallMonitorSetup setup({.report = 2s, .limit = 60s});
  setup.Submit("a");
  REQUIRE(setup.LookUntil(900ms));
  REQUIRE(setup.parts.transport.ring_count == 0);
  REQUIRE(setup.monitor.TakeOverdueNames().empty());
  REQUIRE(setup.LookUntil(1600ms));
  REQUIRE(setup.parts.transport.ring_count == 1);
  REQUIRE(setup.monitor.TakeOverdueNames() == std::vector<std::string>{"a"});
  REQUIRE(setup.monitor.TakeOverdueNames().empty());
  REQUIRE(setup.lines.empty());
}

TEST_CASE("A tensor is reported after the report time and fails after the limit", "[sync][stall]") {
  StallMonitorSetup setup({.report = 2s, .limit = 5s});
  setup.Submit("a");
  REQUIRE(setup.LookUntil(2600ms));
  REQUIRE(setup.lines.size() == 1);
  REQUIRE(setup.lines[0].find("tensor 'a'") != std::string::npos);
  const Status status = setup.LookUntil(6s);
  REQUIRE_FALSE(status);
  REQUIRE(status.error().code() == ErrorCode::kPeerFailed);
}

TEST_CASE("Without a report time no peer is woken", "[sync][stall]") {
  StallMonitorSetup setup({.report = 0s, .limit = 0s});
  setup.Submit("a");
  REQUIRE(setup.LookUntil(20s));
  REQUIRE(setup.parts.transport.ring_count == 0);
  REQUIRE(setup.lines.empty());
}

TEST_CASE("Time between two looks that are far apart does not count", "[sync][stall]") {
  StallMonitorSetup setup({.report = 2s, .limit = 5s});
  setup.Submit("a");
  REQUIRE(setup.LookUntil(600ms));
  REQUIRE(setup.monitor.Look(setup.start + 1h));  // the process was stopped
  REQUIRE(setup.lines.empty());
  REQUIRE(setup.parts.transport.ring_count == 0);
}

}  // namespace
}  // namespace lmdbio::sync
