#include "lmdbio/load/turns/stagger_trial.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

StaggerRates Rates(double freely, double half, double quarter, uint64_t unclear_count = 0) {
  StaggerRates rates;
  rates.bytes_per_s = {freely, half, quarter, 0};
  rates.unclear_count = unclear_count;
  return rates;
}

TEST_CASE("Tokens are chosen if they are better by a twentieth", "[exchange][stagger]") {
  CHECK(ChooseStaggerWay(Rates(100, 90, 80), 3, 8) == 0);
  CHECK(ChooseStaggerWay(Rates(100, 104, 102), 3, 8) == 0);
  CHECK(ChooseStaggerWay(Rates(100, 120, 110), 3, 8) == 1);
  CHECK(ChooseStaggerWay(Rates(100, 120, 200), 3, 8) == 2);
  CHECK(ChooseStaggerWay(Rates(100, 120, 200), 2, 8) == 1);  // the last one was not tried
}

TEST_CASE("No tokens are chosen if trainers are slow", "[exchange][stagger]") {
  CHECK(ChooseStaggerWay(Rates(100, 120, 200, 4), 3, 8) == 2);
  CHECK(ChooseStaggerWay(Rates(100, 120, 200, 5), 3, 8) == 0);
}

TEST_CASE("Token counts of a half of the readers, a quarter, ..., and one are tried",
          "[exchange][stagger]") {
  CHECK(TokenCountsToTry(1).empty());
  CHECK(TokenCountsToTry(2) == std::vector<uint32_t>{1});
  CHECK(TokenCountsToTry(3) == std::vector<uint32_t>{1});
  CHECK(TokenCountsToTry(4) == std::vector<uint32_t>{2, 1});
  CHECK(TokenCountsToTry(11) == std::vector<uint32_t>{5, 2, 1});
  CHECK(TokenCountsToTry(16) == std::vector<uint32_t>{8, 4, 2, 1});
  CHECK(TokenCountsToTry(16, 2) == std::vector<uint32_t>{8, 4});
  CHECK(TokenCountsToTry((1 << 17) - 1).size() == kStaggerWaysMax - 2);
  CHECK(TokenCountsToTry(1 << 20).size() == kStaggerWaysMax - 1);
}

// Way w reads 1,000 bytes a slot in 1 + w seconds.
TEST_CASE("A trial measures each way over its own slots", "[exchange][stagger]") {
  StaggerTrial trial(3);
  double now_s = 50;
  for (uint64_t slot = 0; slot < trial.slot_count(); ++slot) {
    REQUIRE(!trial.TakeRates());
    const size_t way = trial.WayOf(slot);
    CHECK(way == (slot < 2 ? 0 : (slot - 2) / 4));
    now_s += slot == 0 ? 77 : 1 + static_cast<double>(way);  // the first slot takes long
    trial.SlotDone(1000, now_s);
  }
  CHECK(trial.WayOf(trial.slot_count()) == 0);
  const auto rates = trial.TakeRates();
  REQUIRE(rates);
  CHECK(rates->bytes_per_s[0] == Approx(1000));
  CHECK(rates->bytes_per_s[1] == Approx(500));
  CHECK(rates->bytes_per_s[2] == Approx(1000.0 / 3));
  CHECK(rates->unclear_count == 0);
  CHECK(!trial.TakeRates());
  trial.SlotDone(1000, now_s + 1);
  CHECK(!trial.TakeRates());
}

TEST_CASE("Waits for trainers do not count, unless they are most of the time",
          "[exchange][stagger]") {
  for (const double waited_s : {1.0, 30.0}) {
    StaggerTrial trial(2);
    double now_s = 0;
    for (uint64_t slot = 0; slot < trial.slot_count(); ++slot) {
      now_s += 1;
      if (slot == 4) {
        now_s += waited_s;
        trial.Waited(waited_s);
      }
      trial.SlotDone(100, now_s);
    }
    const auto rates = trial.TakeRates();
    REQUIRE(rates);
    CHECK(rates->bytes_per_s[0] == Approx(100));
    CHECK(rates->unclear_count == (waited_s > 4 ? 1 : 0));
  }
}

}  // namespace
}  // namespace lmdbio::load
