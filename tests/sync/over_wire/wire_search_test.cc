// Goal: the search finds the fastest algorithm, chunk size and depth for each size, in the time
// that it has.
// Method: virtual time. A function of size and choice gives the time of a call, so the best choice
// is known: the oracle is a search over all combinations.
#include "lmdbio/sync/over_wire/wire_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;

constexpr double kMicrosecond = 1e-6;

using CostModel = std::function<double(uint64_t bytes, const WireChoice& choice)>;  // seconds

struct Call {
  uint64_t bytes;
  WireChoice choice;
  int rounds;
};

// A search with a clock that only calls move.
struct VirtualTrial {
  std::vector<Call> calls;
  WireSeconds now = WireSeconds(0);
  MeasuredWire found;

  VirtualTrial(const WireSearchSpace& space, WireSeconds time, const CostModel& cost) {
    const auto measure = [&](uint64_t bytes, const WireChoice& choice,
                             int rounds) -> Result<WireSeconds> {
      calls.push_back({bytes, choice, rounds});
      const WireSeconds one(cost(bytes, choice));
      now += rounds * one;
      return one;
    };
    auto result = SearchWire(space, time, measure, [&] { return now; });
    REQUIRE(result.has_value());
    found = std::move(*result);
    CHECK(CheckWireTable(found.table));
  }
};

uint64_t RunBytes(uint64_t bytes, const WireChoice& choice, int rank_count) {
  return choice.algorithm == WireAlgorithm::kHalving ? bytes / 2
                                                     : bytes / static_cast<uint64_t>(rank_count);
}

// A network like that of Hashemi et al. 4.4: a chunk in flight costs some time, and pipelining
// hides the work on all chunks but one. So the best depth grows with the size.
struct PipelinedNetwork {
  int rank_count = 4;
  double bytes_per_second = 1e9;
  double step_seconds = 20 * kMicrosecond;
  double chunk_seconds = 5 * kMicrosecond;

  double operator()(uint64_t bytes, const WireChoice& choice) const {
    const double size = static_cast<double>(bytes);
    const double doublings = std::log2(rank_count);
    if (choice.algorithm == WireAlgorithm::kDoubling) {
      return doublings * (step_seconds + size / bytes_per_second);
    }
    const uint64_t run = RunBytes(bytes, choice, rank_count);
    const uint64_t chunk_bytes = std::clamp<uint64_t>(choice.chunk_bytes, 1, std::max(run, 1UL));
    const uint64_t count = std::max<uint64_t>((run + chunk_bytes - 1) / chunk_bytes, 1);
    const double depth = static_cast<double>(std::min<uint64_t>(choice.chunk_depth, count));
    const double ring_steps = 2.0 * (rank_count - 1);
    const double steps = choice.algorithm == WireAlgorithm::kDirect    ? 2
                         : choice.algorithm == WireAlgorithm::kHalving ? 2 * doublings
                                                                       : ring_steps;
    const double sent = ring_steps / rank_count * size / bytes_per_second;
    const double exposed_work = sent / depth / 2;
    const double crowded = choice.algorithm == WireAlgorithm::kDirect ? 1.3 : 1;
    return steps * step_seconds + crowded * (sent + exposed_work) + 4 * depth * chunk_seconds +
           static_cast<double>(count) * chunk_seconds / 8;
  }
};

std::vector<WireChoice> EveryChoice() {
  std::vector<WireChoice> all;
  for (const auto algorithm : {WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                               WireAlgorithm::kHalving, WireAlgorithm::kDirect}) {
    for (const uint64_t chunk_bytes : kTriedChunkBytes) {
      for (const uint32_t depth : kTriedDepths) {
        all.push_back({.algorithm = algorithm, .chunk_bytes = chunk_bytes, .chunk_depth = depth});
      }
    }
  }
  return all;
}

// The least time of a call over some of the choices.
double LeastTime(const PipelinedNetwork& network, uint64_t bytes,
                 const std::function<bool(const WireChoice&)>& counts) {
  double least = 1e9;
  for (const WireChoice& choice : EveryChoice()) {
    if (!counts(choice)) continue;
    if (choice.algorithm == WireAlgorithm::kDoubling && bytes > kTriedDoublingBytesMax) continue;
    least = std::min(least, network(bytes, choice));
  }
  return least;
}

TEST_CASE("The choice of each size is as fast as the best of all", "[wire][search]") {
  const PipelinedNetwork network{.rank_count = GENERATE(2, 4, 8)};
  INFO(network.rank_count << " ranks");
  const VirtualTrial trial({.rank_count = network.rank_count}, 60s, network);
  CHECK(trial.found.measured_bytes == kTriedBytes.back());
  for (const uint64_t bytes : kTriedBytes) {
    INFO(bytes << " bytes");
    const WireChoice& chosen = ChoiceFor(trial.found.table, bytes);
    if (bytes >= 256 << 10 && chosen.algorithm == WireAlgorithm::kRing) {
      const WireChoice usual;
      const auto is_ring = [](const auto& one) { return one.algorithm == WireAlgorithm::kRing; };
      const auto is_usual = [&](const auto& one) {
        return one.chunk_bytes == usual.chunk_bytes && one.chunk_depth == usual.chunk_depth;
      };
      CHECK(network(bytes, chosen) <= 1.05 * LeastTime(network, bytes, is_ring));
      CHECK(network(bytes, usual) <= 1.25 * LeastTime(network, bytes, is_usual));
    } else {
      const auto is_any = [](const auto&) { return true; };
      CHECK(network(bytes, chosen) <= 1.05 * LeastTime(network, bytes, is_any));
    }
  }
}

TEST_CASE("Large sums use the ring unless it is much slower", "[wire][search]") {
  const double ring_loss = GENERATE(1.2, 1.3);
  const VirtualTrial trial({}, 60s, [&](uint64_t bytes, const WireChoice& choice) {
    return static_cast<double>(bytes) * 1e-9 *
           (choice.algorithm == WireAlgorithm::kRing ? ring_loss : 1);
  });
  const auto is_ring = [&](uint64_t bytes) {
    return ChoiceFor(trial.found.table, bytes).algorithm == WireAlgorithm::kRing;
  };
  CHECK_FALSE(is_ring(64 << 10));
  CHECK(is_ring(256 << 10) == (ring_loss < 1.25));
  CHECK(is_ring(64 << 20) == (ring_loss < 1.25));
}

TEST_CASE("A disturbed measurement brings no slower choice", "[wire][search]") {
  const PipelinedNetwork network{.rank_count = 8, .chunk_seconds = 50 * kMicrosecond};
  const VirtualTrial quiet({.rank_count = 8}, 60s, network);
  // The first measurement only tells how long calls take.
  for (size_t disturbed = 1; disturbed < quiet.calls.size(); ++disturbed) {
    INFO("measurement " << disturbed);
    size_t measured = 0;
    const VirtualTrial trial({.rank_count = 8}, 60s, [&](uint64_t bytes, const WireChoice& choice) {
      return network(bytes, choice) * (measured++ == disturbed ? 3 : 1);
    });
    const bool is_same = std::ranges::all_of(kTriedBytes, [&](uint64_t bytes) {
      const WireChoice& chosen = ChoiceFor(trial.found.table, bytes);
      const WireChoice usual = {.algorithm = chosen.algorithm};
      return chosen.algorithm == ChoiceFor(quiet.found.table, bytes).algorithm &&
             network(bytes, chosen) <= network(bytes, usual);
    });
    CHECK(is_same);
  }
}

TEST_CASE("The depth grows with the size where the network asks for it", "[wire][search]") {
  const PipelinedNetwork network{.chunk_seconds = 50 * kMicrosecond};
  const VirtualTrial trial({.algorithm = WireAlgorithm::kRing}, 60s, network);
  CHECK(ChoiceFor(trial.found.table, 1 << 20).chunk_depth == 2);
  CHECK(ChoiceFor(trial.found.table, 64 << 20).chunk_depth == 8);
  CHECK(ChoiceFor(trial.found.table, kAnyBytes).chunk_depth == 8);
}

TEST_CASE("No two choices that are measured at a size make the same messages", "[wire][search]") {
  const int rank_count = GENERATE(2, 3, 8, 64, 65);
  const VirtualTrial trial({.rank_count = rank_count}, 60s,
                           PipelinedNetwork{.rank_count = rank_count});
  int repeats = 0;
  // The first call only opens connections, and tells how long calls take.
  for (size_t i = 1; i < trial.calls.size(); ++i) {
    for (size_t k = 1; k < i; ++k) {
      const bool is_again =
          trial.calls[i].choice.algorithm == trial.calls[k].choice.algorithm &&
          trial.calls[i].choice.chunk_bytes == trial.calls[k].choice.chunk_bytes &&
          trial.calls[i].choice.chunk_depth == trial.calls[k].choice.chunk_depth;
      if (trial.calls[i].bytes != trial.calls[k].bytes || is_again) continue;
      repeats +=
          IsSameCall(trial.calls[i].choice, trial.calls[k].choice, trial.calls[i].bytes, rank_count)
              ? 1
              : 0;
    }
  }
  CHECK(repeats == 0);
}

TEST_CASE("Choices are the same call if their messages are", "[wire][search]") {
  const WireChoice usual;
  WireChoice deeper;
  deeper.chunk_depth = 8;
  // Four ranks: the ring sends quarters, of one chunk up to 1 MiB, and of two up to 2 MiB.
  CHECK(IsSameCall(usual, deeper, 1 << 20, 4));
  CHECK(IsSameCall(usual, deeper, 2 << 20, 4));
  CHECK_FALSE(IsSameCall(usual, deeper, 4 << 20, 4));
  WireChoice larger;
  larger.chunk_bytes = 1 << 20;
  CHECK(IsSameCall(usual, larger, 1 << 20, 4));
  CHECK_FALSE(IsSameCall(usual, larger, 2 << 20, 4));
  WireChoice halving;
  halving.algorithm = WireAlgorithm::kHalving;
  CHECK_FALSE(IsSameCall(usual, halving, 1 << 10, 4));
  WireChoice large_halving = halving;
  large_halving.chunk_bytes = 1 << 20;
  // Halving sends a half first. Three ranks fold, and then one of them sends all values.
  CHECK(IsSameCall(halving, large_halving, 512 << 10, 4));
  CHECK_FALSE(IsSameCall(halving, large_halving, 512 << 10, 3));
  // Eight ranks, eight chunks of 1 MiB: the direct algorithm has memory for chunks of 512 KiB.
  const WireChoice direct{
      .algorithm = WireAlgorithm::kDirect, .chunk_bytes = 1 << 20, .chunk_depth = 8};
  WireChoice half = direct;
  half.chunk_bytes = 512 << 10;
  CHECK(IsSameCall(direct, half, 64 << 20, 8));
}

TEST_CASE("Fixed options are never varied", "[wire][search]") {
  const PipelinedNetwork network;
  const VirtualTrial chunk({.chunk_bytes = 100'000}, 60s, network);
  const VirtualTrial depth({.chunk_depth = 3}, 60s, network);
  const VirtualTrial algorithm({.algorithm = WireAlgorithm::kHalving}, 60s, network);
  const auto all = [](const VirtualTrial& trial, const auto& test) {
    return std::ranges::all_of(trial.calls, [&](const Call& call) { return test(call.choice); }) &&
           std::ranges::all_of(trial.found.table, test);
  };
  CHECK(all(chunk, [](const WireChoice& one) { return one.chunk_bytes == 100'000; }));
  CHECK(all(depth, [](const WireChoice& one) { return one.chunk_depth == 3; }));
  CHECK(all(algorithm,
            [](const WireChoice& one) { return one.algorithm == WireAlgorithm::kHalving; }));
}

TEST_CASE("The search ends in time, and not before", "[wire][search]") {
  const double bytes_per_second = GENERATE(1e6, 125e6, 1.25e9, 12.5e9);
  INFO(bytes_per_second << " bytes/s");
  constexpr WireSeconds kLimit = 200ms;
  const PipelinedNetwork network{.rank_count = 8, .bytes_per_second = bytes_per_second};
  const VirtualTrial trial({.rank_count = 8}, kLimit, network);
  CHECK(trial.now <= 1.1 * kLimit);
  const auto last = std::ranges::find(kTriedBytes, trial.found.measured_bytes);
  if (last + 1 == kTriedBytes.end()) return;
  // Two calls of each of three algorithms would not fit. The search expects a time that grows with
  // the bytes.
  const double expected = 4 * network(*last, ChoiceFor(trial.found.table, *last));
  CHECK(trial.now + WireSeconds(2 * 3 * expected) > kLimit);
}

TEST_CASE("Chunk sizes and depths are left out when the time is over", "[wire][search]") {
  // Calls of 4 MiB take 30 times as long as smaller ones, which the search cannot expect.
  const VirtualTrial trial(
      {.algorithm = WireAlgorithm::kRing}, 200ms,
      [](uint64_t bytes, const WireChoice&) { return bytes < 4 << 20 ? 1e-3 : 30e-3; });
  CHECK(trial.found.measured_bytes == 4 << 20);
  CHECK(trial.now <= WireSeconds(200ms));
}

TEST_CASE("Long calls vary the chunk size first, then the depth", "[wire][search]") {
  const VirtualTrial trial({.algorithm = WireAlgorithm::kRing}, 200ms,
                           [](uint64_t bytes, const WireChoice& choice) {
                             if (bytes < 16 << 20) return 0.5e-3;
                             const bool is_best_chunk = choice.chunk_bytes == 1 << 20;
                             const bool is_best_depth = choice.chunk_depth == 8;
                             return 2e-3 * (is_best_chunk ? 0.8 : 1) * (is_best_depth ? 0.8 : 1);
                           });
  // The usual chunks, two other sizes, three other depths. A better one is measured again, and so
  // is the best before it.
  CHECK(std::ranges::count(trial.calls, 16U << 20, &Call::bytes) == 1 + (2 + 2) + (3 + 2));
  // The choice of 16 MiB is better than the usual one, and what is left is not.
  const auto calls = std::ranges::count(trial.calls, 64U << 20, &Call::bytes);
  CHECK(calls <= 1 + (1 + 2) + 2 + 3);
  CHECK(trial.found.table.back().chunk_bytes == 1 << 20);
  CHECK(trial.found.table.back().chunk_depth == 8);
}

TEST_CASE("The ring takes the sizes that a slow network leaves out", "[wire][search]") {
  // Halving is faster up to some size, and slower than the ring where the rate decides.
  const double ring_steps = GENERATE(10e-3, 2e-3);
  const auto cost = [&](uint64_t bytes, const WireChoice& choice) {
    const double sent = static_cast<double>(bytes) / 8e6;
    if (choice.algorithm == WireAlgorithm::kRing) return ring_steps + sent;
    return 0.1e-3 + sent * (choice.algorithm == WireAlgorithm::kHalving ? 1.03 : 1.5);
  };
  const VirtualTrial trial({}, 200ms, cost);
  CHECK(trial.found.measured_bytes == 64 << 10);
  const WireChoice& small = ChoiceFor(trial.found.table, 1 << 10);
  const WireChoice& large = trial.found.table.back();
  CHECK(small.algorithm == WireAlgorithm::kHalving);
  // At the largest measured size the ring is within 1.25 of the best, or is not.
  CHECK((large.algorithm == WireAlgorithm::kRing) == (ring_steps < 5e-3));
  const WireChoice& last = ChoiceFor(trial.found.table, trial.found.measured_bytes);
  CHECK(last.algorithm == WireAlgorithm::kHalving);
}

TEST_CASE("The smallest size is measured in any time", "[wire][search]") {
  const VirtualTrial trial({}, 0s, [](uint64_t, const WireChoice& choice) {
    return choice.algorithm == WireAlgorithm::kDoubling ? 1.0 : 2.0;
  });
  CHECK(trial.found.measured_bytes == 1 << 10);
  CHECK(trial.found.ample_bytes == kUsualAmpleBytes);
  // Doubling takes no large calls, so the ring stands in for it.
  REQUIRE(trial.found.table.size() == 2);
  CHECK(trial.found.table[0].algorithm == WireAlgorithm::kDoubling);
  CHECK(trial.found.table[0].bytes_max == 2 << 10);
  CHECK(trial.found.table[1].algorithm == WireAlgorithm::kRing);
}

TEST_CASE("A small gain changes neither chunk size nor depth", "[wire][search]") {
  const double gain = GENERATE(0.02, 0.04);
  const VirtualTrial trial(
      {.algorithm = WireAlgorithm::kRing}, 60s, [&](uint64_t bytes, const WireChoice& choice) {
        const bool is_other = choice.chunk_bytes == 64 << 10 || choice.chunk_depth == 4;
        return static_cast<double>(bytes) * 1e-9 * (is_other ? 1 - gain : 1);
      });
  const WireChoice& large = trial.found.table.back();
  const bool is_usual =
      large.chunk_bytes == kUsualChunkBytes && large.chunk_depth == kUsualChunkDepth;
  CHECK(is_usual == (gain < 0.03));
}

TEST_CASE("Short calls are repeated more often than long ones", "[wire][search]") {
  const VirtualTrial trial({}, 200ms, [](uint64_t bytes, const WireChoice&) {
    return bytes <= 64 << 10 ? 50 * kMicrosecond : 2e-3;
  });
  const auto rounds_at = [&](uint64_t bytes) {
    return std::find_if(trial.calls.begin(), trial.calls.end(),
                        [bytes](const Call& call) { return call.bytes == bytes; })
        ->rounds;
  };
  CHECK(rounds_at(4 << 10) == 7);  // 1/128 of 200 ms, and at most four times 50 us a call
  CHECK(rounds_at(1 << 20) == 2);
}

TEST_CASE("The ample size is the first whose time per byte is near the best", "[wire][search]") {
  const VirtualTrial trial({}, 60s, [](uint64_t bytes, const WireChoice&) {
    return 1e-3 + static_cast<double>(bytes) * 1e-8;  // 1 ms is 10 % of the time of 1 MB
  });
  CHECK(trial.found.ample_bytes == 1 << 20);
}

TEST_CASE("With more than 64 ranks, direct is measured on request alone", "[wire][search]") {
  const PipelinedNetwork network{.rank_count = 65};
  const auto is_direct = [](const Call& call) {
    return call.choice.algorithm == WireAlgorithm::kDirect;
  };
  const VirtualTrial any({.rank_count = 65}, 60s, network);
  CHECK(std::ranges::none_of(any.calls, is_direct));
  const VirtualTrial direct({.rank_count = 65, .algorithm = WireAlgorithm::kDirect}, 60s, network);
  CHECK(std::ranges::all_of(direct.calls, is_direct));
}

TEST_CASE("A failed call ends the search with its error", "[wire][search]") {
  int calls = 0;
  const auto found = SearchWire(
      {}, 60s,
      [&](uint64_t, const WireChoice&, int) -> Result<WireSeconds> {
        if (++calls == 20) return Fail(ErrorCode::kPeerFailed, "rank 1 has left");
        return WireSeconds(1e-6);
      },
      [] { return WireSeconds(0); });
  REQUIRE_FALSE(found.has_value());
  CHECK(found.error().message() == "rank 1 has left");
  CHECK(calls == 20);
}

}  // namespace
}  // namespace lmdbio::sync
