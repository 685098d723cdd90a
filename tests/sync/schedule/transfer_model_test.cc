// Goal: a model tells the time of calls that were not measured, its own error, and the threshold of
// 4.2; samples that give no model are refused.
#include "lmdbio/sync/schedule/transfer_model.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/sync/schedule/schedule_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::Random;
using test::RandomModel;
using Samples = std::vector<TransferSample>;

TransferModel ModelOf(const Samples& samples) {
  Result<TransferModel> model = TransferModel::FromSamples(samples);
  REQUIRE(model);
  return *model;
}

// Sizes as in a trial: 1 KiB to 16 MiB.
std::vector<uint64_t> TrialSizes() {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = 1 << 10; bytes <= 16 << 20; bytes *= 2) sizes.push_back(bytes);
  return sizes;
}

// A network with a latency, and a rate that changes at a size of the trial.
struct KnownNetwork {
  double latency_ns = 0;
  double small_ns = 0;  // of a byte
  double large_ns = 0;  // of a byte behind `bend`
  double bend = 0;

  explicit KnownNetwork(Random& random)
      : latency_ns(static_cast<double>(random.Between(1'000, 100'000))),
        small_ns(static_cast<double>(random.Between(5, 100)) / 100),
        large_ns(small_ns * static_cast<double>(random.Between(50, 200)) / 100),
        bend(static_cast<double>(uint64_t{1} << random.Between(12, 22))) {}

  double TimeOf(double bytes) const {
    return latency_ns + small_ns * std::min(bytes, bend) + large_ns * std::max(bytes - bend, 0.0);
  }
};

double RelativeError(const TransferModel& model, const KnownNetwork& network, uint64_t bytes) {
  const double expected = network.TimeOf(static_cast<double>(bytes));
  return std::abs(static_cast<double>(model.TimeOf(bytes)) - expected) / expected;
}

TEST_CASE("A model is straight between points and goes on with the last slope", "[schedule]") {
  const TransferModel model = ModelOf({{1000, 200}, {100, 50}, {3000, 250}});
  CHECK(model.points() == Samples{{100, 50}, {1000, 200}, {3000, 250}});
  CHECK(model.TimeOf(0) == 50);
  CHECK(model.TimeOf(100) == 50);
  CHECK(model.TimeOf(101) == 51);  // rounded up
  CHECK(model.TimeOf(550) == 125);
  CHECK(model.TimeOf(1000) == 200);
  CHECK(model.TimeOf(2000) == 225);
  CHECK(model.TimeOf(3000) == 250);
  CHECK(model.TimeOf(5000) == 300);
  CHECK(model.TimeOf(~uint64_t{0}) <= kTimeMaxNs);
  CHECK(ModelOf({{1, 1}, {2, 1 << 30}}).TimeOf(~uint64_t{0}) == kTimeMaxNs);
  CHECK(ModelOf({{1, 1}, {2, 1 << 30}}).LeastTimeOf(~uint64_t{0}) <= kTimeMaxNs);
}

TEST_CASE("The least sample of a size counts, and one slower than a larger one is dropped",
          "[schedule]") {
  CHECK(ModelOf({{100, 90}, {200, 80}, {100, 50}, {100, 70}, {200, 75}}).points() ==
        Samples{{100, 50}, {200, 75}});
  CHECK(ModelOf({{100, 50}, {200, 300}, {300, 70}, {400, 71}}).points() ==
        Samples{{100, 50}, {300, 70}, {400, 71}});
  CHECK(ModelOf({{100, 50}, {200, 70}, {300, 70}}).points() == Samples{{100, 50}, {300, 70}});
}

TEST_CASE("Samples that give no model are refused", "[schedule]") {
  const uint64_t bytes_max = TransferModel::kBytesMax;
  const int64_t ns_max = TransferModel::kPointNsMax;
  CHECK(ModelOf({{1, 1}, {bytes_max, ns_max}}).TimeOf(bytes_max) == ns_max);
  for (const Samples& samples : std::vector<Samples>{{},
                                                     {{100, 50}},
                                                     {{100, 50}, {100, 60}},
                                                     {{100, 50}, {200, 50}},
                                                     {{100, 50}, {200, 40}},
                                                     {{100, 50}, {200, 40}, {300, 30}},
                                                     {{0, 50}, {200, 60}},
                                                     {{100, 0}, {200, 60}},
                                                     {{100, -1}, {200, 60}},
                                                     {{100, 50}, {bytes_max + 1, 60}},
                                                     {{100, 50}, {200, ns_max + 1}}}) {
    const Result<TransferModel> model = TransferModel::FromSamples(samples);
    REQUIRE_FALSE(model);
    CHECK(model.error().code() == ErrorCode::kInvalidArgument);
    const Result<TransferModel> of_points = TransferModel::FromPoints(samples);
    REQUIRE_FALSE(of_points);
    CHECK(of_points.error().code() == ErrorCode::kInvalidArgument);
  }
  // Points have a place each; samples are sorted.
  CHECK_FALSE(TransferModel::FromPoints({{200, 60}, {100, 50}}));
  CHECK_FALSE(TransferModel::FromPoints({{100, 50}, {200, 60}, {200, 70}}));
  CHECK(TransferModel::FromPoints({{100, 50}, {200, 60}}));
}

TEST_CASE("The threshold of a straight model is 1.5 a / b", "[schedule]") {
  // f(x) = 6400 + 2 x: the first x above 4800.
  CHECK(ModelOf({{64, 6400 + 128}, {64'000, 6400 + 128'000}}).Threshold() == 4801);
  // All sizes cost their bytes: the first size of which half is a point.
  CHECK(ModelOf({{64, 64}, {640, 640}}).Threshold() == 52);
  // A step of the network: f(200) = 1.7 f(100). A straight line from 100 on would give 1000.
  CHECK(ModelOf({{100, 100}, {200, 170}, {1000, 200}}).Threshold() < 100);
  // A rate that is so high that no size of a tensor reaches the threshold.
  CHECK(ModelOf({{1, int64_t{1} << 40}, {TransferModel::kBytesMax, (int64_t{1} << 40) + 1}})
            .Threshold() == TransferModel::kBytesMax);
}

TEST_CASE("Threshold, bytes and least time agree with all sizes of random models", "[schedule]") {
  ForSeeds(2'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const TransferModel model = RandomModel(random);
    const uint64_t threshold = model.Threshold();
    const auto is_above = [&](uint64_t bytes, int64_t slack) {
      return 5 * model.TimeOf(2 * bytes) > 8 * model.TimeOf(bytes) + slack;
    };
    if (!is_above(threshold, 0)) return "not above the threshold";
    // Times are rounded, so a size just before it may differ by one nanosecond.
    for (uint64_t bytes = 0; bytes < std::min<uint64_t>(threshold, 5'000); ++bytes) {
      if (is_above(bytes, 13)) return fmt::format("{} is above, too", bytes);
    }
    for (int64_t ns = 0; ns < 300; ++ns) {
      const uint64_t bytes = model.BytesWithin(ns);
      if (bytes > 0 && model.TimeOf(bytes) > ns) return "too many bytes";
      if (bytes == 0 && ns >= model.points()[0].ns) return "no bytes";
      if (model.TimeOf(bytes + 1) <= ns) return "too few bytes";
    }
    uint64_t bytes = 0;
    int64_t calls_ns = 0;
    for (int call = 0; call < 20; ++call) {
      // Mostly sizes of points, where the time of a byte is least.
      const uint64_t size = random.Below(3) == 0
                                ? random.Below(20'000)
                                : model.points()[random.Below(model.points().size())].bytes;
      bytes += size;
      calls_ns += model.TimeOf(size);
      if (model.LeastTimeOf(bytes) > calls_ns) return "calls are faster than the least time";
    }
    // Calls of the best point, or very large ones, take the least time.
    bool is_reached = false;
    for (const TransferSample& point : model.points()) {
      is_reached = is_reached || model.LeastTimeOf(1000 * point.bytes) == 1000 * point.ns;
    }
    const uint64_t many = uint64_t{1} << 40;
    const int64_t most_ns = model.TimeOf(many);
    is_reached = is_reached || most_ns - model.LeastTimeOf(many) < 1000;
    return is_reached ? "" : "no call reaches the least time";
  });
}

TEST_CASE("A model of a known network is right to 1 % at sizes that were not tried", "[schedule]") {
  ForSeeds(1'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const KnownNetwork network(random);
    Samples samples;
    for (const uint64_t bytes : TrialSizes()) {
      // Other work delays all calls but one.
      const auto ns = static_cast<int64_t>(network.TimeOf(static_cast<double>(bytes)));
      samples.push_back({bytes, ns + static_cast<int64_t>(random.Below(100'000))});
      samples.push_back({bytes, ns});
      samples.push_back({bytes, ns + static_cast<int64_t>(random.Below(100'000))});
    }
    random.Shuffle(samples);
    const TransferModel model = ModelOf(samples);
    for (int i = 0; i < 50; ++i) {
      const uint64_t bytes = random.Between(1 << 10, 64 << 20);
      if (RelativeError(model, network, bytes) > 0.01) return fmt::format("{} bytes", bytes);
    }
    return "";
  });
}

// The error is that of a point that the model does not know. It is more than that of the model,
// because the points beside it are far away, and less if they are wrong in the same way.
TEST_CASE("The error of a noisy model covers the truth", "[schedule]") {
  constexpr int kNetworks = 1000;
  int covered_count = 0;
  for (uint64_t seed = 0; seed < kNetworks; ++seed) {
    Random random(seed);
    const KnownNetwork network(random);
    Samples samples;
    for (const uint64_t bytes : TrialSizes()) {
      const double noise = 0.9 + static_cast<double>(random.Below(401)) / 2000;
      samples.push_back(
          {bytes, static_cast<int64_t>(noise * network.TimeOf(static_cast<double>(bytes)))});
    }
    const TransferModel model = ModelOf(samples);
    REQUIRE(model.error_permille());
    const double told = static_cast<double>(*model.error_permille()) / 1000;
    double greatest = 0;
    for (int i = 0; i < 50; ++i) {
      greatest =
          std::max(greatest, RelativeError(model, network, random.Between(1 << 10, 16 << 20)));
    }
    CAPTURE(seed, told, greatest);
    CHECK(greatest <= 2 * told + 0.001);
    CHECK(told <= 0.6);  // the noise is 0.1; behind the last point it counts up to five times
    if (greatest <= told) ++covered_count;
  }
  CHECK(covered_count >= kNetworks * 9 / 10);
}

TEST_CASE("The error of a model is that of a point that it does not know", "[schedule]") {
  CHECK_FALSE(ModelOf({{100, 50}, {200, 100}}).error_permille());
  CHECK(ModelOf({{100, 100}, {200, 200}, {300, 300}}).error_permille() == 0);
  // Without (200, 100): 200 in 200. Without (300, 300): 300 in 100 + 0. The first is not left out.
  CHECK(ModelOf({{100, 99}, {200, 100}, {300, 301}}).error_permille() == 1000);
  CHECK(ModelOf({{100, 100}, {200, 200}, {300, 400}}).error_permille() == 250);
  // Without (300, 301): 500 in 300.
  CHECK(ModelOf({{100, 100}, {200, 300}, {300, 301}}).error_permille() == 661);
  // A sample that was dropped: 150 in 140 instead of 300.
  CHECK(ModelOf({{100, 100}, {200, 180}, {150, 280}}).error_permille() == 500);
  CHECK(ModelOf({{1, 1}, {2, int64_t{1} << 45}, {3, (int64_t{1} << 45) + 1}}).error_permille() <=
        1'000'000);
}

}  // namespace
}  // namespace lmdbio::sync
