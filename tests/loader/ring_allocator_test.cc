#include "lmdbio/loader/ring_allocator.h"

#include <catch2/catch.hpp>

#include <deque>

#include "tests/support/random.h"

namespace lmdbio::loader {
namespace {

struct Live {
  uint64_t slot, begin, end;
};

// Goal: a slot that is written as soon as its place says so never touches one that is still held.
TEST_CASE("A slot's place is free once the slots it names are let go", "[loader]") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    test::Random random(seed);
    constexpr uint64_t kWrap = 1000, kCapacity = 4000;
    RingAllocator ring(kWrap, kCapacity);
    std::deque<Live> live;
    for (uint64_t slot = 0; slot < 300; ++slot) {
      const uint64_t size =
          random.Below(20) == 0 ? random.Between(1001, 4000) : random.Between(1, 400);
      const auto place = ring.Allocate(size);
      REQUIRE(place.has_value());
      REQUIRE(place->at + size <= kCapacity);
      REQUIRE(place->free_after <= slot);  // never waits for itself
      while (!live.empty() && live.front().slot < place->free_after) live.pop_front();
      for (const Live& other : live) {
        REQUIRE((other.end <= place->at || place->at + size <= other.begin));
      }
      live.push_back({slot, place->at, place->at + size});
    }
  }
}

TEST_CASE("A slot larger than the ring has no place", "[loader]") {
  RingAllocator ring(100, 200);
  CHECK(ring.Allocate(200).has_value());
  CHECK_FALSE(ring.Allocate(201).has_value());
}

}  // namespace
}  // namespace lmdbio::loader
