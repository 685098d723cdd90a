#include "lmdbio/ranks/net/sleeping_barrier.h"

#include <atomic>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

Status Failure() { return Fail(ErrorCode::kIo, "of its own"); }

TEST_CASE("No rank passes the barrier before all have arrived", "[comm]") {
  const ThreadRanks ranks = GENERATE(ThreadRanks{1}, ThreadRanks{4}, ThreadRanks{5, 2});
  constexpr int kMeetings = 300;
  std::atomic<int> arrived{0};
  std::atomic<int> early{0};
  RunAsThreads(ranks, [&](Group& group) {
    auto barrier = SleepingBarrier::Create(group);
    if (!barrier) return;
    for (int i = 0; i < kMeetings; ++i) {
      arrived.fetch_add(1);
      if (!(*barrier)->Meet({})) return;
      if (arrived.load() < (i + 1) * group.size()) early.fetch_add(1);
    }
  });
  CHECK(early == 0);
  CHECK(arrived == kMeetings * ranks.rank_count);
}

// A rank that woke late once returned the failure of the next round, and left; the others waited
// for it for ever. Here each rank makes all its calls in any case, so the old defect would not
// hang.
TEST_CASE("A failure belongs to the round in which a rank passed it", "[comm]") {
  const ThreadRanks ranks = GENERATE(ThreadRanks{4}, ThreadRanks{4, 2});
  constexpr int kGoodMeetings = 3;
  std::atomic<int> wrong{0};
  for (int trial = 0; trial < 500; ++trial) {
    RunAsThreads(ranks, [&](Group& group) {
      auto barrier = SleepingBarrier::Create(group);
      if (!barrier) {
        wrong.fetch_add(1);
        return;
      }
      for (int i = 0; i < kGoodMeetings; ++i) {
        if (!(*barrier)->Meet({})) wrong.fetch_add(1);
      }
      const bool fails = group.rank() == trial % group.size();
      const Status met = (*barrier)->Meet(fails ? Failure() : Status());
      const ErrorCode expected = fails ? ErrorCode::kIo : ErrorCode::kPeerFailed;
      if (met || met.error().code() != expected) wrong.fetch_add(1);
      if ((*barrier)->Meet({})) wrong.fetch_add(1);  // it stays
    });
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace lmdbio::ranks
