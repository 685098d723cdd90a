// Goal: sync_bench counts each sleep, switch and batch once, for the thread that it belongs to.

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "bench/sync/input_load.h"
#include "bench/sync/sleep_lateness.h"
#include "tests/support/catch.h"

namespace lmdbio::bench {
namespace {

TEST_CASE("LatenessCounts give the quantiles of a sorted list, to a sixteenth", "[sleep]") {
  std::mt19937_64 chance(1);
  std::vector<uint64_t> values;
  LatenessCounts counts;
  for (int i = 0; i < 10'000; ++i) {
    values.push_back(chance() >> (24 + chance() % 40));
    counts.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  CHECK(counts.sleep_count() == values.size());
  for (const double q : {0.001, 0.1, 0.5, 0.9, 0.99, 1.0}) {
    const auto place = static_cast<size_t>(std::ceil(q * static_cast<double>(values.size()))) - 1;
    const auto expected = static_cast<double>(values[place]);
    CHECK(std::abs(counts.QuantileNs(q) - expected) <= expected / 16);
  }
  CHECK(LatenessCounts().QuantileNs(0.5) == 0);
}

TEST_CASE("Classes of lateness grow with it and have an end", "[sleep]") {
  for (uint64_t late = 0; late < 5000; ++late) {
    const size_t step = LatenessCounts::ClassOf(late + 1) - LatenessCounts::ClassOf(late);
    CHECK(step <= 1);
  }
  CHECK(LatenessCounts::ClassOf((uint64_t{1} << 43) - 1) == LatenessCounts::kClassCount - 1);
  CHECK(LatenessCounts::ClassOf(~uint64_t{0}) == LatenessCounts::kClassCount - 1);
}

TEST_CASE("Each sleep counts for the thread that slept", "[sleep]") {
  const std::vector<pid_t> self = {::gettid()};
  const LatenessCounts before = LatenessOf(self);
  for (int i = 0; i < 7; ++i) std::this_thread::sleep_for(std::chrono::microseconds(10));
  pid_t other = 0;
  std::thread([&other] {
    other = ::gettid();
    for (int i = 0; i < 3; ++i) std::this_thread::sleep_for(std::chrono::microseconds(10));
  }).join();
  CHECK((LatenessOf(self) - before).sleep_count() == 7);
  CHECK(LatenessOf({other}).sleep_count() == 3);
  CHECK((LatenessOf({self.front(), other}) - before).sleep_count() == 10);
}

TEST_CASE("nanosleep fails as that of the C library does, and such a sleep does not count",
          "[sleep]") {
  const LatenessCounts before = LatenessOf({::gettid()});
  const timespec wrong = {.tv_sec = 0, .tv_nsec = -1};
  errno = 0;
  CHECK(::nanosleep(&wrong, nullptr) == -1);
  CHECK(errno == EINVAL);
  CHECK((LatenessOf({::gettid()}) - before).sleep_count() == 0);
}

TEST_CASE("Input threads prepare one batch in each iteration", "[input]") {
  InputLoad load({.thread_count = 2, .units_per_batch = 100, .is_by_iteration = true});
  REQUIRE(load.threads().size() == 2);
  for (uint64_t i = 0; i < 10; ++i) {
    load.BeginIteration();  // waits for the batches of the one before
    CHECK(load.batch_count() >= 2 * i);
    CHECK(load.batch_count() <= 2 * (i + 1));
  }
}

TEST_CASE("A load without threads does not hold an iteration up", "[input]") {
  InputLoad load({.thread_count = 0, .units_per_batch = 100, .is_by_iteration = true});
  for (int i = 0; i < 3; ++i) load.BeginIteration();
  CHECK(load.threads().empty());
  CHECK(load.batch_count() == 0);
}

}  // namespace
}  // namespace lmdbio::bench
