// Goal: a plan by time is made of calls as they are without rests between them.
#include <cstdint>
#include <vector>

#include "lmdbio/sync/graph/plan_times.h"
#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

using Samples = std::vector<TransferSample>;

// A network whose bucket is full after a rest: then a call takes 600 ns, and otherwise 1,000.
TEST_CASE("Calls behind a rest do not replace those of the trial", "[timed_plan]") {
  const Samples trial = {{64, 100}, {4096, 1000}};
  PlanTimes times(trial);
  int64_t now_ns = 1'000'000;
  const auto call = [&](int64_t rest_ns, int64_t ns) {
    now_ns += rest_ns + ns;
    times.OnTransfer({4096, ns}, now_ns, TransferStart::kMeets);
  };
  call(0, 600);  // the end of the trial is not known, so this one counts
  for (int i = 0; i < 20; ++i) call(400, 600);
  CHECK(times.Samples() == trial);
  for (int i = 0; i < 3; ++i) call(0, 1200);
  CHECK(times.Samples() == Samples{{64, 100}, {4096, 1200}});
  // The calls of a plan are no rest.
  times.OnPlan({.plan = Plan::FromOrder({}, {}, 1)});
  for (int i = 0; i < 1000; ++i) call(0, 1200);
  times.OnAbandoned();
  for (int i = 0; i < 3; ++i) call(0, 1300);
  CHECK(times.Samples() == Samples{{64, 100}, {4096, 1300}});
}

}  // namespace
}  // namespace lmdbio::sync
