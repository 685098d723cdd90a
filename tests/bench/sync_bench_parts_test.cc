// Goal: sync_bench's input threads prepare as many batches as they are asked for.

#include "bench/sync/input_load.h"
#include "tests/support/catch.h"

namespace lmdbio::bench {
namespace {

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
