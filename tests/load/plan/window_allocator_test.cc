#include "lmdbio/load/plan/window_allocator.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

struct ReservedRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

bool Overlap(const ReservedRange& a, const ReservedRange& b) {
  return a.begin < b.end && b.begin < a.end;
}

// Fills slots in window memory, releases them in order at random times, and checks that no two live
// slots overlap.
class Simulation {
 public:
  Simulation(uint64_t wrap_bytes, uint64_t capacity_bytes, uint64_t seed)
      : ring_(wrap_bytes, capacity_bytes), capacity_bytes_(capacity_bytes), random_(seed) {}

  // False if the allocator refuses the slot.
  bool Add(uint64_t size_bytes) {
    const std::optional<WindowReservation> place = ring_.Allocate(size_bytes);
    if (!place) return false;
    REQUIRE(place->free_after <= slots_.size());  // else the slot waits for itself
    REQUIRE(place->at + size_bytes <= capacity_bytes_);
    // Readers wait for exactly this many slots; ranks may have released more.
    let_go_ = std::max(let_go_, place->free_after);
    if (random_.Below(3) == 0) let_go_ = random_.Between(let_go_, slots_.size());
    const ReservedRange slot{place->at, place->at + size_bytes};
    for (uint64_t i = let_go_; i < slots_.size(); ++i) REQUIRE_FALSE(Overlap(slots_[i], slot));
    slots_.push_back(slot);
    highest_ = std::max(highest_, slot.end);
    return true;
  }

  uint64_t live_count() const { return slots_.size() - let_go_; }
  uint64_t highest() const { return highest_; }

 private:
  WindowAllocator ring_;
  uint64_t capacity_bytes_;
  test::Random random_;
  std::vector<ReservedRange> slots_;
  uint64_t let_go_ = 0;
  uint64_t highest_ = 0;
};

TEST_CASE("Slots of a ring never share bytes while they live", "[loader][ring]") {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::Random random(seed);
    const uint64_t capacity_bytes = random.Between(1, 1000);
    const uint64_t wrap_bytes = random.Between(0, capacity_bytes);
    const uint64_t usual_max = random.Between(1, capacity_bytes);
    Simulation simulation(wrap_bytes, capacity_bytes, seed);
    for (int i = 0; i < 300; ++i) {
      const bool is_large = random.Below(10) == 0;
      REQUIRE(simulation.Add(random.Between(0, is_large ? capacity_bytes : usual_max)));
    }
  }
}

TEST_CASE("A ring gives the same places for the same sizes", "[loader][ring]") {
  WindowAllocator one(500, 1000);
  WindowAllocator other(500, 1000);
  test::Random random(7);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t size_bytes = random.Below(700);
    const auto place = one.Allocate(size_bytes);
    const auto same = other.Allocate(size_bytes);
    REQUIRE(place->at == same->at);
    REQUIRE(place->free_after == same->free_after);
  }
}

TEST_CASE("A ring wraps where it should, and only large slots go beyond", "[loader][ring]") {
  WindowAllocator ring(100, 250);
  const auto expect = [&](uint64_t size_bytes, uint64_t at, uint64_t free_after) {
    const auto place = ring.Allocate(size_bytes);
    REQUIRE(place);
    CHECK(place->at == at);
    CHECK(place->free_after == free_after);
  };
  expect(40, 0, 0);   // slot 0
  expect(60, 40, 0);  // slot 1 reaches the wrap
  expect(30, 0, 1);   // slot 2, where slot 0 was
  expect(20, 30, 2);  // slot 3, where slots 0 and 1 were
  expect(200, 0, 4);  // slot 4 is larger than the wrap
  expect(250, 0, 5);  // slot 5 takes the whole capacity
  expect(10, 0, 6);   // slot 6, back below the wrap
  expect(90, 10, 6);  // slot 7
  expect(0, 100, 6);  // slot 8 is empty
  expect(1, 0, 7);    // slot 9
}

TEST_CASE("A ring refuses what is larger than it, and goes on", "[loader][ring]") {
  WindowAllocator ring(100, 250);
  CHECK_FALSE(ring.Allocate(251));
  CHECK_FALSE(ring.Allocate(~uint64_t{0}));
  const auto place = ring.Allocate(250);
  REQUIRE(place);
  CHECK(place->at == 0);
  CHECK(place->free_after == 0);
}

TEST_CASE("A ring with little in it touches little memory", "[loader][ring]") {
  Simulation simulation(400, 100'000, 3);
  for (int i = 0; i < 1000; ++i) REQUIRE(simulation.Add(100));
  CHECK(simulation.highest() <= 400);
  CHECK(simulation.live_count() <= 4);
}

}  // namespace
}  // namespace lmdbio::load
