// Goal: with many ranks and readers, and slots of every size in a small window memory, every rank
// gets every slot whole and in order, and no reader writes a slot that a rank still reads.
// Method: the ranks are threads. Each compares the bytes of a slot when it gets it, waits for a
// random time, and compares them again before it releases the slot.
#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/load/plan/window_allocator.h"
#include "lmdbio/load/slots/window.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace lmdbio::load {
namespace {

constexpr uint64_t kSmallRingBytes = 4096;

struct WindowLoad {
  int rank_count = 1;
  int reader_count = 1;
  uint64_t slot_count = 0;
  uint64_t slot_bytes_max = 0;
  uint64_t seed = 0;
};

// The complaints of all ranks and readers.
class PressureErrors {
 public:
  void Add(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (list_.size() < 5) list_.push_back(text);
  }
  std::vector<std::string> list() const { return list_; }

 private:
  std::mutex mutex_;
  std::vector<std::string> list_;
};

// The slots in order. All threads compute the same sizes and positions.
class SlotReservations {
 public:
  explicit SlotReservations(const WindowLoad& load)
      : load_(load), random_(load.seed), ring_(kSmallRingBytes / 2, kSmallRingBytes) {}

  // Returns the number of slots that must be released before the next slot is written.
  uint64_t Next() {
    size_bytes = random_.Between(1, load_.slot_bytes_max);
    const WindowReservation place = *ring_.Allocate(size_bytes);
    at = place.at;
    const uint64_t reused = slot >= Window::kSlotsMax ? slot - Window::kSlotsMax + 1 : 0;
    ++slot;
    return std::max(place.free_after, reused);
  }

  uint64_t slot = 0;  // the number of the next one
  uint64_t at = 0;
  uint64_t size_bytes = 0;

 private:
  WindowLoad load_;
  test::Random random_;
  WindowAllocator ring_;
};

std::byte PatternOf(uint64_t slot, uint64_t index) {
  return static_cast<std::byte>(slot * 31 + index * 7 + 1);
}

bool HoldsPattern(const Window& window, uint64_t slot, const SlotHead& head) {
  for (uint64_t i = 0; i < head.entries_at; ++i) {
    if (window.ring()[head.shares_at + i] != PatternOf(slot, i)) return false;
  }
  return true;
}

void Dawdle(test::Random& random) {
  const uint64_t kind = random.Below(40);
  if (kind == 0) std::this_thread::sleep_for(std::chrono::microseconds(random.Below(1500)));
  if (kind < 4) std::this_thread::yield();
}

// Writes its part of each slot; some parts come with a bad range.
void Read(Window& window, const WindowLoad& load, int reader, PressureErrors& complaints) {
  SlotReservations places(load);
  test::Random random(load.seed + 100 + static_cast<uint64_t>(reader));
  const auto readers = static_cast<uint64_t>(load.reader_count);
  for (uint64_t slot = 0; slot < load.slot_count; ++slot) {
    const auto space = window.AwaitSpace(places.Next());
    if (!space || !*space) return complaints.Add("a reader got no space");
    const uint64_t begin = places.size_bytes * static_cast<uint64_t>(reader) / readers;
    const uint64_t end = places.size_bytes * (static_cast<uint64_t>(reader) + 1) / readers;
    for (uint64_t i = begin; i < end; ++i) window.ring()[places.at + i] = PatternOf(slot, i);
    const bool is_bad = slot % 5 == 0;
    if (is_bad && !window.AddBadRange(slot, {static_cast<uint64_t>(reader), slot})) {
      complaints.Add("no room for a bad range");
    }
    Dawdle(random);
    if (!window.FinishPart(slot)) continue;
    const std::vector<BadRange> bad = window.TakeBadRanges(slot);
    if (bad.size() != (is_bad ? readers : 0)) complaints.Add("bad ranges were miscounted");
    for (const BadRange& range : bad) {
      if (range.length_bytes != slot) complaints.Add("the bad range of another slot");
    }
    window.Announce(slot, {slot, 1, places.at, places.size_bytes});
  }
}

void Consume(Window& window, const WindowLoad& load, int rank, uint64_t slot_count,
             PressureErrors& complaints) {
  test::Random random(load.seed + 200 + static_cast<uint64_t>(rank));
  for (uint64_t slot = 0; slot < slot_count; ++slot) {
    const auto head = window.AwaitSlot(slot);
    if (!head) return complaints.Add(head.error().message());
    if (head->first_batch != slot) complaints.Add("another slot than the one asked for");
    if (!HoldsPattern(window, slot, *head))
      complaints.Add("a slot is announced before it is whole");
    Dawdle(random);
    if (!HoldsPattern(window, slot, *head)) complaints.Add("a slot is written while it is read");
    window.LetGo(slot + 1);
  }
}

// early_rank  leaves after a third of the slots; -1: no rank leaves early
std::vector<std::string> Run(const WindowLoad& load, int early_rank) {
  PressureErrors complaints;
  const WindowShape shape{load.rank_count, load.reader_count, kSmallRingBytes};
  ranks::RunAsThreads({.rank_count = load.rank_count}, [&](ranks::Group& group) {
    auto memory = group.AllocateShared(Window::BytesNeeded(shape));
    if (!memory) return complaints.Add(memory.error().message());
    const int rank = group.rank();
    Window window((*memory)->bytes(), shape, rank, rank);
    window.Introduce();
    if (!group.Barrier()) return complaints.Add("no barrier");
    window.WatchPeers();
    std::thread reader;
    if (rank < load.reader_count) {
      reader = std::thread([&] { Read(window, load, rank, complaints); });
    }
    Consume(window, load, rank, rank == early_rank ? load.slot_count / 3 : load.slot_count,
            complaints);
    window.Leave();
    if (!window.AwaitAllLeft(std::chrono::seconds(60))) complaints.Add("not all have left");
    if (reader.joinable()) reader.join();
    if (!group.Barrier()) return complaints.Add("no barrier");
  });
  return complaints.list();
}

TEST_CASE("Every rank gets every slot whole, however small the ring", "[loader][window]") {
  for (const int rank_count : {1, 2, 3, 8}) {
    for (const int reader_count : {1, 2, 3}) {
      if (reader_count > rank_count) continue;
      // Slots of every size, up to all of the ring; and so small ones that their number is the
      // bound.
      for (const uint64_t slot_bytes_max : {kSmallRingBytes, uint64_t{1500}, uint64_t{8}}) {
        CAPTURE(rank_count, reader_count, slot_bytes_max);
        const WindowLoad load{rank_count, reader_count, 250, slot_bytes_max,
                              static_cast<uint64_t>(rank_count)};
        CHECK(Run(load, -1) == std::vector<std::string>{});
      }
    }
  }
}

TEST_CASE("The others go on when a rank leaves early, reader or not", "[loader][window]") {
  const int early_rank = GENERATE(0, 3);
  CAPTURE(early_rank);
  const WindowLoad load{4, 2, 300, 1500, 9};
  CHECK(Run(load, early_rank) == std::vector<std::string>{});
}

}  // namespace
}  // namespace lmdbio::load
