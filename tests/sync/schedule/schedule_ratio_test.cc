// Goal: on networks, the order by due times gains over one wait at the end what can be gained, and
// waits alone gain nothing.
//
// A call costs its bytes only. Computing takes C, the forward pass a third of it, and all transfers
// rho C. With one wait at the end an iteration takes C / 3 + max(2 C / 3, rho C), at best
// max(C, rho C).
#include <algorithm>
#include <string>
#include <vector>

#include "lmdbio/sync/schedule/predict.h"
#include "tests/support/catch.h"
#include "tests/sync/schedule/schedule_cases.h"

namespace lmdbio::sync {
namespace {

using test::LayerShape;
using test::TimesOfTraining;
using test::TrainingTimes;

constexpr int64_t kComputingNs = 300'000'000;  // C
constexpr uint64_t kSliceBytes = 1 << 20;
constexpr uint64_t kLeastBytes = 256;  // of a tensor
constexpr double kTolerance = 0.02;

uint64_t BytesOf(const TrainingTimes& training) {
  uint64_t bytes = 0;
  for (const TimedTensor& tensor : training.tensors) bytes += tensor.bytes;
  return bytes;
}

// Iterations over C.
struct Ratios {
  double one_wait = 0;  // whole tensors in order, one wait at the end of the backward pass
  double waits = 0;     // the same, with a wait before each layer
  double due = 0;       // slices, by due time
  double bins = 0;      // whole tensors in the windows of 4.3
  double bound = 0;
};

Ratios RatiosOf(const std::vector<LayerShape>& layers, int rho_percent) {
  const TrainingTimes training = TimesOfTraining(layers, kComputingNs);
  const uint64_t bytes = BytesOf(training);
  const int64_t channel_ns = kComputingNs * rho_percent / 100;
  const auto least_ns =
      static_cast<int64_t>(kLeastBytes) * channel_ns / static_cast<int64_t>(bytes);
  const Result<TransferModel> model =
      TransferModel::FromPoints({{kLeastBytes, least_ns}, {bytes, channel_ns}});
  REQUIRE(model);
  UnitOptions options;
  options.threshold_bytes = 1;  // no batches
  options.slice_bytes = kSliceBytes;
  options.length_ns = training.length_ns;
  const std::vector<TransferUnit> units = MakeUnits(training.tensors, *model, options);
  std::vector<TransferUnit> at_end = units;
  for (TransferUnit& unit : at_end) unit.due_ns = training.backward_end_ns;
  const auto over_c = [&](const std::vector<TransferUnit>& played,
                          const std::vector<TransferStep>& steps) {
    const PredictedIteration iteration =
        PredictIteration(played, steps, training.length_ns, *model);
    return static_cast<double>(iteration.length_ns) / kComputingNs;
  };
  const auto in_order = OrderAsGiven(units);
  return {over_c(at_end, in_order), over_c(units, in_order),
          over_c(units, OrderByDue(units, *model)),
          over_c(units, OrderInBins(units, *model, training.length_ns)),
          static_cast<double>(LowerBound(units, training.length_ns, *model)) / kComputingNs};
}

TEST_CASE("By due time, networks gain what can be gained", "[schedule]") {
  for (const auto& layers : {test::ResNet50Layers(), test::Vgg16Layers()}) {
    for (const int rho_percent : {25, 50, 75, 100, 150, 200, 300, 500}) {
      CAPTURE(layers.size(), rho_percent);
      const double rho = rho_percent / 100.0;
      const double one_wait = 1.0 / 3 + std::max(2.0 / 3, rho);
      const double best = std::max(1.0, rho);
      const Ratios ratios = RatiosOf(layers, rho_percent);
      // The last gradients are ready at the end, so a little more than the closed forms.
      CHECK(ratios.one_wait == Approx(one_wait).margin(kTolerance));
      CHECK(ratios.waits == Approx(one_wait).margin(kTolerance));
      CHECK(ratios.due == Approx(best).margin(kTolerance));
      CHECK(ratios.bound == Approx(best).margin(kTolerance));
      CHECK(ratios.due / ratios.one_wait == Approx(best / one_wait).margin(kTolerance));
      CHECK(ratios.bound <= ratios.due);
      CHECK(ratios.bound <= ratios.bins);
      // Tensors are whole in bins. One of VGG-16 has three quarters of all bytes, and it fits
      // beside neither pass; the tensors of ResNet-50 are small.
      if (layers.size() > 50) CHECK(ratios.bins <= ratios.one_wait);
    }
  }
}

TEST_CASE("The shapes of the networks are those of their papers", "[schedule]") {
  const auto parameters_of = [](const std::vector<LayerShape>& layers) {
    return BytesOf(TimesOfTraining(layers, kComputingNs)) / 4;
  };
  CHECK(parameters_of(test::ResNet50Layers()) == 25'557'032);
  CHECK(parameters_of(test::Vgg16Layers()) == 138'357'544);
}

}  // namespace
}  // namespace lmdbio::sync
