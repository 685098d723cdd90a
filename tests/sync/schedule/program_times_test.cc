// Goal: ready and due times are those of the program, without delays; a program that does something
// else each time is not steady.
#include "lmdbio/sync/schedule/program_times.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/sync/schedule/schedule_cases.h"

namespace lmdbio::sync {
namespace {

using test::ForSeeds;
using test::Random;
using Times = std::vector<TensorTimes>;

// A backward pass of 60 ns for tensors 2, 1 and 0, and a forward pass that needs 0, 1 and 2.
void PlayIteration(ProgramTimes& times, int64_t begin_ns, int64_t delay_ns = 0) {
  times.OnSubmit(2, begin_ns);
  times.OnSubmit(1, begin_ns + 20 + delay_ns);
  times.OnSubmit(0, begin_ns + 60 + delay_ns);
  times.OnWaited(0, begin_ns + 60 + delay_ns);
  times.OnWaited(1, begin_ns + 70 + delay_ns);
  times.OnWaited(2, begin_ns + 80 + delay_ns);
}

TEST_CASE("Ready and due times are relative to the first submission", "[schedule]") {
  ProgramTimes times(3);
  PlayIteration(times, 1000);
  CHECK(times.iteration_count() == 0);  // its length is unknown
  PlayIteration(times, 1100);
  CHECK(times.iteration_count() == 1);
  CHECK(times.tensors() == Times{{60, 60}, {20, 70}, {0, 80}});
  CHECK(times.length_ns() == 100);
}

TEST_CASE("Only the first wait for a tensor counts", "[schedule]") {
  ProgramTimes times(1);
  times.OnWaited(0, 1);  // before its first submission
  for (int64_t begin_ns : {100, 200}) {
    times.OnSubmit(0, begin_ns);
    times.OnWaited(0, begin_ns + 10);
    times.OnWaited(0, begin_ns + 20);
  }
  CHECK(times.iteration_count() == 1);
  CHECK(times.tensors() == Times{{0, 10}});
}

TEST_CASE("The times are the least of the last 5 iterations", "[schedule]") {
  ProgramTimes times(3);
  int64_t now_ns = 0;
  for (const int64_t delay_ns : {0, 7, 5, 9, 3, 6}) {
    PlayIteration(times, now_ns, delay_ns);
    now_ns += 100 + delay_ns;
  }
  CHECK(times.tensors() == Times{{60, 60}, {20, 70}, {0, 80}});  // of the first 5
  CHECK(times.length_ns() == 100);
  PlayIteration(times, now_ns, 8);
  CHECK(times.iteration_count() == 6);
  CHECK(times.tensors() == Times{{63, 63}, {23, 73}, {0, 83}});
  CHECK(times.length_ns() == 103);
}

TEST_CASE("The spread is that of all but the longest of the last 5 iterations", "[schedule]") {
  ProgramTimes times(3);
  int64_t now_ns = 0;
  const auto play = [&](int64_t delay_ns) {
    PlayIteration(times, now_ns, delay_ns);
    now_ns += 100 + delay_ns;
  };
  play(50);
  play(3);
  CHECK(times.spread_ns() == 0);
  play(8);
  CHECK(times.spread_ns() == 47);  // of 150 and 103
  play(4);
  play(5);
  CHECK(times.spread_ns() == 47);  // four iterations are complete
  play(6);
  CHECK(times.spread_ns() == 5);  // of 103 and 108
  play(90);
  CHECK(times.spread_ns() == 3);  // of 103 and 106; the first iteration does not count any more
  play(0);
  CHECK(times.spread_ns() == 4);  // of 104 and 108, with 190
}

TEST_CASE("A tensor may be due in the next iteration", "[schedule]") {
  ProgramTimes times(2);
  for (int64_t begin_ns = 0; begin_ns < 600; begin_ns += 100) {
    times.OnSubmit(0, begin_ns);
    times.OnWaited(1, begin_ns + 30);  // of the iteration before
    times.OnSubmit(1, begin_ns + 40);
    times.OnWaited(0, begin_ns + 50);
  }
  CHECK(times.iteration_count() == 5);
  CHECK(times.tensors() == Times{{0, 50}, {40, 130}});
  CHECK(times.length_ns() == 100);
}

TEST_CASE("A program may begin an iteration before the last one is submitted", "[schedule]") {
  ProgramTimes times(2);
  times.OnSubmit(0, 0);
  times.OnWaited(0, 10);
  times.OnSubmit(0, 100);
  CHECK(times.iteration_count() == 0);
  times.OnSubmit(1, 120);
  times.OnWaited(1, 150);
  CHECK(times.iteration_count() == 1);
  CHECK(times.tensors() == Times{{0, 10}, {120, 150}});
  CHECK(times.length_ns() == 100);
}

TEST_CASE("A tensor that nobody waits for is due with the last wait after its submission",
          "[schedule]") {
  ProgramTimes times(4);
  for (int64_t begin_ns : {0, 100}) {
    times.OnSubmit(0, begin_ns);
    times.OnSubmit(1, begin_ns + 10);  // nobody waits for it
    times.OnSubmit(2, begin_ns + 20);
    times.OnWaited(0, begin_ns + 30);
    times.OnWaited(2, begin_ns + 40);
    times.OnSubmit(3, begin_ns + 50);  // nor for this one, after all waits
  }
  REQUIRE(times.iteration_count() == 1);
  CHECK(times.tensors() == Times{{0, 30}, {10, 40}, {20, 40}, {50, 100}});

  ProgramTimes unawaited(2);
  for (int64_t begin_ns : {0, 100}) {
    unawaited.OnSubmit(0, begin_ns);
    unawaited.OnSubmit(1, begin_ns + 120);
  }
  CHECK(unawaited.tensors() == Times{{0, 100}, {120, 120}});
}

TEST_CASE("A time that comes out of order does not come before its submission", "[schedule]") {
  ProgramTimes times(2);
  for (int64_t begin_ns : {100, 200}) {
    times.OnSubmit(0, begin_ns);
    times.OnSubmit(1, begin_ns - 5);
    times.OnWaited(1, begin_ns - 5);
    times.OnWaited(0, begin_ns - 1);
  }
  CHECK(times.tensors() == Times{{0, 0}, {0, 0}});
}

TEST_CASE("Times are steady if three of five iterations are alike", "[schedule]") {
  const auto times_with = [](const std::vector<int64_t>& delays_ns, int64_t pause_ns) {
    ProgramTimes times(3);
    int64_t now_ns = 0;
    for (const int64_t delay_ns : delays_ns) {
      PlayIteration(times, now_ns, delay_ns);
      now_ns += 100 + (delay_ns > 0 ? pause_ns : 0);
    }
    times.OnSubmit(2, now_ns);
    return times;
  };
  CHECK(times_with({0, 0, 0, 0, 0}, 0).is_steady());
  CHECK_FALSE(times_with({0, 0, 0, 0}, 0).is_steady());  // too few
  CHECK(times_with({0, 26, 0, 26, 0}, 0).is_steady());
  CHECK_FALSE(times_with({0, 26, 0, 26, 26}, 0).is_steady());
  CHECK(times_with({0, 25, 25, 25, 25}, 0).is_steady());  // a quarter of the length is allowed
  CHECK(times_with({0, 1, 1, 1, 1}, 25).is_steady());
  CHECK_FALSE(times_with({0, 1, 1, 1, 0}, 26).is_steady());
  CHECK(times_with({26, 26, 26, 0, 0, 0, 0}, 0).is_steady());  // the first two are forgotten
}

TEST_CASE("A wait in another place each time is not steady", "[schedule]") {
  ProgramTimes times(1);
  for (int64_t i = 0; i < 7; ++i) {
    times.OnSubmit(0, 100 * i);
    times.OnWaited(0, 100 * i + (i % 3) * 30);
  }
  CHECK(times.iteration_count() == 6);
  CHECK_FALSE(times.is_steady());
}

TEST_CASE("A program that is not steady after 20 iterations is dynamic", "[schedule]") {
  ProgramTimes times(2);
  for (int64_t i = 0; i < 21; ++i) {
    CHECK_FALSE(times.is_dynamic());
    const size_t first = i % 2 == 0 ? 0 : 1;
    times.OnSubmit(first, 100 * i);
    times.OnSubmit(1 - first, 100 * i + 60);
    times.OnWaited(0, 100 * i + 90);
    times.OnWaited(1, 100 * i + 90);
  }
  CHECK(times.iteration_count() == 20);
  CHECK(times.is_dynamic());
  for (int64_t i = 21; i < 30; ++i) {
    times.OnSubmit(0, 100 * i);
    times.OnSubmit(1, 100 * i + 60);
    times.OnWaited(0, 100 * i + 90);
    times.OnWaited(1, 100 * i + 90);
  }
  CHECK_FALSE(times.is_dynamic());
}

TEST_CASE("A tensor that does not come any more restarts the iterations", "[schedule]") {
  ProgramTimes times(3);
  for (int64_t i = 0; i < 3; ++i) PlayIteration(times, 100 * i);
  REQUIRE(times.iteration_count() == 2);
  for (int64_t i = 3; i < 8; ++i) {
    times.OnSubmit(0, 100 * i);
    times.OnWaited(0, 100 * i + 50);
  }
  CHECK(times.iteration_count() == 3);
  // Of the five iterations of the lone tensor only the last two are left.
  for (int64_t i = 8; i < 14; ++i) {
    times.OnSubmit(2, 100 * i);
    times.OnSubmit(1, 100 * i);
  }
  CHECK(times.iteration_count() == 5);
}

TEST_CASE("A restart begins with the next submission", "[schedule]") {
  ProgramTimes times(3);
  for (int64_t i = 0; i < 3; ++i) PlayIteration(times, 100 * i);
  times.OnSubmit(2, 300);
  times.OnSubmit(1, 320);
  times.Restart();
  times.OnWaited(1, 350);  // of before
  PlayIteration(times, 400);
  CHECK(times.iteration_count() == 3);
  PlayIteration(times, 510);
  CHECK(times.iteration_count() == 4);
  CHECK(times.tensors() == Times{{60, 60}, {20, 70}, {0, 80}});
  CHECK(times.length_ns() == 100);
}

// A program with random times, and a delay of each event in each iteration. The oracle takes the
// least of the last 5 of what was put in.
TEST_CASE("The times of random programs are found", "[schedule]") {
  ForSeeds(1'000, [](uint64_t seed) -> std::string {
    Random random(seed);
    const size_t tensor_count = random.Between(1, 6);
    const auto length_ns = static_cast<int64_t>(random.Between(50, 200));
    const size_t iteration_count = random.Between(2, 9);
    const size_t kept_count = std::min(iteration_count, ProgramTimes::kKeptCount);
    Times base(tensor_count);
    for (size_t i = 0; i < tensor_count; ++i) {
      base[i].ready_ns = i == 0 ? 0 : static_cast<int64_t>(random.Below(40));
      // Before the next submission of the tensor.
      base[i].due_ns = base[i].ready_ns + static_cast<int64_t>(random.Below(45));
      if (random.Below(4) == 0) base[i].due_ns = length_ns + base[i].ready_ns - 1;
    }
    // Time, iteration, whether it is a wait, tensor.
    std::vector<std::tuple<int64_t, size_t, int, size_t>> events;
    Times expected(tensor_count, {1 << 30, 1 << 30});
    for (size_t k = 0; k <= iteration_count; ++k) {
      const int64_t begin_ns = static_cast<int64_t>(k) * length_ns;
      for (size_t i = 0; i < tensor_count; ++i) {
        TensorTimes times = base[i];
        if (i > 0 && random.Below(2) == 0 && times.ready_ns < times.due_ns) ++times.ready_ns;
        events.emplace_back(begin_ns + times.ready_ns, k, 0, i);
        events.emplace_back(begin_ns + times.due_ns, k, 1, i);
        if (k >= iteration_count || k + kept_count < iteration_count) continue;
        expected[i].ready_ns = std::min(expected[i].ready_ns, times.ready_ns);
        expected[i].due_ns = std::min(expected[i].due_ns, times.due_ns);
      }
    }
    std::sort(events.begin(), events.end());
    ProgramTimes program(tensor_count);
    for (const auto& [ns, k, is_wait, tensor] : events) {
      if (is_wait == 0) {
        program.OnSubmit(tensor, ns + 1'000'000);
      } else {
        program.OnWaited(tensor, ns + 1'000'000);
      }
    }
    if (program.iteration_count() != iteration_count) {
      return fmt::format("{} iterations", program.iteration_count());
    }
    if (program.length_ns() != length_ns) return "the length";
    return program.tensors() == expected ? "" : "the times";
  });
}

}  // namespace
}  // namespace lmdbio::sync
