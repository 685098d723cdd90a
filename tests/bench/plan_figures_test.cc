// Goal: the figures of a plan by time are those that the library predicts, beside those of the run.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/sync/gradient_sync.h"
#include "bench/sync/input_load.h"
#include "bench/sync/report/plan_figures.h"
#include "lmdbio/sync/collective/forwarded_collectives.h"
#include "lmdbio/sync/collective/solo_collectives.h"
#include "lmdbio/sync/graph/plan_times.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::bench {
namespace {

using Catch::Detail::Approx;
using sync::TransferSample;
using test::Good;

constexpr int64_t kMicrosecond = 1000;

std::vector<std::string> DescriptionWith(const std::string& line) {
  return {"collectives: wire", line, "by a trial of 1024 to 262144 bytes:"};
}

TEST_CASE("The prediction of a plan is read from the description of a synchronizer", "[plan]") {
  sync::PlanTimes times({});
  CHECK_FALSE(PredictionOf(DescriptionWith(times.Text())).has_value());
  sync::TimedPlan plan;
  plan.obstacle = "the times of the iterations differ too much";
  times.OnPlan(plan);
  CHECK_FALSE(PredictionOf(DescriptionWith(times.Text())).has_value());
  plan.forecast = sync::PlanForecast{.iteration_ns = 123'460 * kMicrosecond,
                                     .arrival_ns = 150'000 * kMicrosecond,
                                     .bound_ns = 98'070 * kMicrosecond,
                                     .step_count = 4711};
  for (const bool is_by_arrival : {false, true}) {
    plan.forecast->is_by_arrival = is_by_arrival;
    times.OnPlan(plan);
    const auto prediction = PredictionOf(DescriptionWith(times.Text()));
    REQUIRE(prediction.has_value());
    CHECK(prediction->iteration_ms == Approx(123.46));
    CHECK(prediction->bound_ms == Approx(98.07));
    CHECK(prediction->is_by_arrival == is_by_arrival);
  }
  CHECK_FALSE(PredictionOf(std::vector<std::string>{}).has_value());
}

// A call of so many units takes that many us, and 100 us more.
void AddCalls(TransferRecord& record, uint64_t units, int count, int64_t more_ns = 0,
              int64_t rest_ns = 0) {
  const auto ns = static_cast<int64_t>(units + 100) * kMicrosecond + more_ns;
  for (int i = 0; i < count; ++i) record.Add({units, ns}, rest_ns);
}

TEST_CASE("A record compares calls of the plan with a model of those before it", "[plan]") {
  TransferRecord record;
  CHECK(record.UntriedSizes().empty());
  AddCalls(record, 100, 4);  // the trial
  AddCalls(record, 1000, 4);
  record.EndIteration(false);
  AddCalls(record, 500, 3);                                          // rounds
  AddCalls(record, 400, 3, -70 * kMicrosecond, 200 * kMicrosecond);  // faster, after rests
  AddCalls(record, 1000, 1);                                         // makes up for them
  record.EndIteration(false);
  CHECK_FALSE(record.has_plan());
  AddCalls(record, 700, 9, 70 * kMicrosecond);  // the rest of the rounds, and the first steps
  record.EndIteration(true);
  CHECK(record.has_plan());
  record.EndIteration(false);  // the plan was abandoned
  CHECK(record.has_plan());
  AddCalls(record, 300, 5, 50 * kMicrosecond, 200 * kMicrosecond);
  AddCalls(record, 500, 5);
  AddCalls(record, 700, 3);
  AddCalls(record, 900, 2);  // too few for a median
  const std::vector<TransferFigure> figures = record.UntriedSizes();
  REQUIRE(figures.size() == 2);
  CHECK(figures[0].bytes == 300);
  CHECK(figures[0].predicted_ns == 400 * kMicrosecond);
  CHECK(figures[0].measured_ns == 450 * kMicrosecond);
  CHECK(figures[1].bytes == 700);
  CHECK(figures[1].predicted_ns == 800 * kMicrosecond);
  CHECK(figures[1].measured_ns == 800 * kMicrosecond);
}

TEST_CASE("Errors of predictions are those of the medians of runs", "[plan]") {
  CHECK_FALSE(SummarisePredictions({}).has_value());
  std::vector<PredictedRun> runs = {{{.iteration_ms = 90, .bound_ms = 80}, 100, {}},
                                    {{.iteration_ms = 95, .bound_ms = 100}, 100, {}},
                                    {{.iteration_ms = 104, .bound_ms = 50}, 100, {}}};
  const auto alone = SummarisePredictions(runs);
  REQUIRE(alone.has_value());
  CHECK(alone->predicted_ms == Approx(95));
  CHECK(alone->error == Approx(-0.05));
  CHECK(alone->error_furthest == Approx(-0.1));
  CHECK(alone->least_ratio == Approx(1.25));
  CHECK_FALSE(alone->transfer_error.has_value());
  CHECK_FALSE(alone->transfer_error_max.has_value());
  runs[0].untried_sizes = {{10, 80, 100}, {20, 101, 100}};
  runs[2].untried_sizes = {{10, 104, 100}};
  const auto with_sizes = SummarisePredictions(runs);
  CHECK(with_sizes->transfer_error.value() == Approx(0.04));
  CHECK(with_sizes->transfer_error_max.value() == Approx(0.2));
}

// Collectives of one rank, in which each second call is declined.
class DecliningCollectives final : public sync::ForwardedCollectives {
 public:
  DecliningCollectives() : ForwardedCollectives(sync::SoloCollectives()) {}

  Result<sync::CallOutcome> AllReduce(const sync::CallTag&, const sync::Values&,
                                      const sync::Reduction&) override {
    is_declined_ = !is_declined_;
    return is_declined_ ? sync::CallOutcome::kDeclined : sync::CallOutcome::kDone;
  }

 private:
  bool is_declined_ = false;
};

TEST_CASE("Watched collectives record the calls that have moved gradients", "[plan]") {
  InputLoad load({});
  InputWindow window(load);
  TransferRecord record;
  const auto watched = WatchTransfers(std::make_unique<DecliningCollectives>(), window, &record);
  const auto call = [&](size_t count, int times) {
    for (int i = 0; i < times; ++i) {
      Good(watched->AllReduce({}, {.count = count, .type = sync::DataType::kFloat64},
                              sync::ReduceOp::kSum));
    }
  };
  AddCalls(record, 1, 3);
  AddCalls(record, 1000, 3);
  record.EndIteration(false);
  record.EndIteration(true);
  call(7, 5);  // two of them are done
  CHECK(record.UntriedSizes().empty());
  call(7, 2);
  call(9, 6);
  const std::vector<TransferFigure> figures = record.UntriedSizes();
  REQUIRE(figures.size() == 2);
  CHECK(figures[0].bytes == 56);
  CHECK(figures[0].measured_ns >= 0);
  CHECK(figures[1].bytes == 72);
}

}  // namespace
}  // namespace lmdbio::bench
