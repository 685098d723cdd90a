// Goal: a rank that yields to its peers continues to yield; a rank whose yields give its core to
// other threads soon sleeps instead.
#include "lmdbio/sync/collective/yield_backoff.h"
#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

// How many waits sleep before one may yield again.
int SleptWaits(YieldBackoff& pauses) {
  int count = 0;
  while (!pauses.MayYield()) ++count;
  return count;
}

TEST_CASE("A rank without a long yield always yields", "[yield_pauses]") {
  YieldBackoff pauses;
  for (int i = 0; i < 10'000; ++i) REQUIRE(pauses.MayYield());
}

TEST_CASE("Pauses after long yields that follow each other grow, up to a limit", "[yield_pauses]") {
  YieldBackoff pauses;
  REQUIRE(pauses.MayYield());
  for (const int expected : {16, 128, 1024, 1024}) {
    pauses.BeginPause();
    CHECK(SleptWaits(pauses) == expected);
  }
}

TEST_CASE("After as many short yields as the last pause had waits, pauses are short again",
          "[yield_pauses]") {
  YieldBackoff pauses;
  for (int i = 0; i < 3; ++i) {
    SleptWaits(pauses);
    pauses.BeginPause();
  }
  SleptWaits(pauses);  // the first that may yield
  SECTION("One less is soon") {
    for (int i = 1; i < 1024; ++i) REQUIRE(pauses.MayYield());
    pauses.BeginPause();
    CHECK(SleptWaits(pauses) == 1024);
  }
  SECTION("One more is not") {
    for (int i = 0; i < 1024; ++i) REQUIRE(pauses.MayYield());
    pauses.BeginPause();
    CHECK(SleptWaits(pauses) == 16);
  }
}

TEST_CASE("A single long yield now and then costs a short pause each", "[yield_pauses]") {
  YieldBackoff pauses;
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < 100; ++i) REQUIRE(pauses.MayYield());
    pauses.BeginPause();
    CHECK(SleptWaits(pauses) == 16);
  }
}

}  // namespace
}  // namespace lmdbio::sync
