// Goal: the readers of one host take turns, in every way of the trial and after it.
// Method: threads act as readers of one host, and count how many read at a time.
#include "lmdbio/load/turns/stagger.h"

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "tests/support/catch.h"

namespace lmdbio::load {
namespace {

struct ReadingReaders {
  std::array<std::atomic<int>, kStaggerWaysMax> now{};
  std::array<std::atomic<int>, kStaggerWaysMax> most{};

  void Enter(size_t way) {
    const int count = ++now[way];
    int seen = most[way].load();
    while (count > seen && !most[way].compare_exchange_weak(seen, count)) {
    }
  }
  void Leave(size_t way) { --now[way]; }
};

// Reads `slot_count` slots. Returns an error message, or "".
std::string ReadSlots(ranks::Group& group, const StaggerOptions& options, uint64_t slot_count,
                      ReadingReaders& reading) {
  auto stagger = Stagger::Create(group, options, group.rank());
  if (!stagger) return stagger.error().message();
  const StaggerTrial trial(options.token_counts.size() + 1);
  for (uint64_t slot = 0; slot < slot_count; ++slot) {
    const size_t way = options.is_tried ? trial.WayOf(slot) : 1;
    while (!(*stagger)->MayBegin(slot, 1000, 0)) {
      const Status waited = (*stagger)->Await(slot);
      if (!waited) return waited.error().message();
    }
    reading.Enter(way);
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    reading.Leave(way);
    (*stagger)->SlotDone(slot, 1000);
  }
  return group.Barrier() ? "" : "Barrier failed";
}

void Play(int readers, const StaggerOptions& options, uint64_t slot_count,
          ReadingReaders& reading) {
  std::vector<std::string> wrong(static_cast<size_t>(readers));
  ranks::RunAsThreads({readers, readers}, [&](ranks::Group& group) {
    wrong[static_cast<size_t>(group.rank())] = ReadSlots(group, options, slot_count, reading);
  });
  for (const std::string& why : wrong) CHECK(why.empty());
}

TEST_CASE("Readers of one host read at most n at a time", "[exchange][stagger]") {
  const auto [readers, tokens] = GENERATE(table<int, uint32_t>({{2, 1}, {4, 1}, {4, 2}, {5, 3}}));
  CAPTURE(readers, tokens);
  ReadingReaders reading;
  Play(readers, {{tokens}, false}, 40, reading);
  CHECK(reading.most[1].load() <= static_cast<int>(tokens));
}

TEST_CASE("A trial on one host reads with each number of tokens", "[exchange][stagger]") {
  ReadingReaders reading;
  const StaggerOptions options{TokenCountsToTry(8), true};
  REQUIRE(options.token_counts == std::vector<uint32_t>{4, 2, 1});
  Play(8, options, StaggerTrial(4).slot_count(), reading);
  for (size_t way = 1; way < 4; ++way) {
    CAPTURE(way);
    CHECK(reading.most[way].load() >= 1);
    CHECK(reading.most[way].load() <= static_cast<int>(options.token_counts[way - 1]));
  }
}

}  // namespace
}  // namespace lmdbio::load
