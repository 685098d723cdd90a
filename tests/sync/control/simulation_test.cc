// Random jobs against the oracle of control_simulator.h. LMDBIO_SEEDS is their number, LMDBIO_SEED
// the first seed.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tests/support/catch.h"
#include "tests/sync/control/control_simulator.h"

namespace lmdbio::test {
namespace {

uint64_t NumberFrom(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 8};
constexpr int kArities[] = {1, 2, 3, 4};

TEST_CASE("Coordinator answers every tensor once and alike on all ranks", "[control][simulation]") {
  const std::string kind = GENERATE("horovod", "cache", "hierarchical");
  const uint64_t first = NumberFrom("LMDBIO_SEED", 1);
  const uint64_t count = NumberFrom("LMDBIO_SEEDS", 3000) / 3;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const int rank_count = kRankCounts[seed % std::size(kRankCounts)];
    const std::string failure = Simulate(kind, rank_count, seed);
    if (!failure.empty()) {
      INFO(kind << ", " << rank_count << " ranks, LMDBIO_SEED=" << seed);
      FAIL(failure);
    }
  }
}

TEST_CASE("Requests that go up a tree of hosts are answered once and alike on all ranks",
          "[control][simulation]") {
  const uint64_t first = NumberFrom("LMDBIO_SEED", 1);
  const uint64_t count = NumberFrom("LMDBIO_SEEDS", 3000) / 3;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const int rank_count = 1 + static_cast<int>(seed % 17);
    const int arity = kArities[seed / 17 % std::size(kArities)];
    const std::string failure = Simulate("hierarchical", rank_count, seed, arity);
    if (!failure.empty()) {
      INFO(rank_count << " ranks, arity " << arity << ", LMDBIO_SEED=" << seed);
      FAIL(failure);
    }
  }
}

}  // namespace
}  // namespace lmdbio::test
