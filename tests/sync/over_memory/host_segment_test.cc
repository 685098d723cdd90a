#include "lmdbio/sync/over_memory/host_segment.h"

#include <optional>

#include "tests/support/catch.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::sync {
namespace {

ranks::SoloHealth solo_health;

// Of a job that has lost a rank.
class LostHealth final : public ranks::Health {
 public:
  Status Check() override {
    ++check_count;
    return Fail(ErrorCode::kPeerFailed, "rank 1 has ended unexpectedly");
  }
  void GiveUp(const Error&) override {}
  int check_count = 0;
};

// Two ranks of one segment. This thread plays both in turn.
struct TwoRanks {
  HostSegmentShape shape{.rank_count = 2, .slot_bytes = 64, .buffer_bytes = 64};
  test::SharedBytes memory{HostSegment::BytesNeeded(shape)};
  HostSegment first{memory.bytes(), shape, 0, WaitMode::kSleep, solo_health};
  HostSegment second{memory.bytes(), shape, 1, WaitMode::kSleep, solo_health};

  void ComeToNextCall() {
    for (HostSegment* table : {&first, &second}) {
      REQUIRE(table->Begin());
      table->Arrive({}, {});
    }
    for (HostSegment* table : {&first, &second}) REQUIRE(table->Await(0));
  }
};

TEST_CASE("HostSegment: a rank need not run while others do its work items", "[collective]") {
  TwoRanks ranks;
  for (int call = 0; call < 5; ++call) {
    CAPTURE(call);
    ranks.ComeToNextCall();
    // The other rank does not run meanwhile.
    for (uint64_t piece = 0; piece < 3; ++piece) {
      REQUIRE(ranks.first.TakePiece(3) == piece);
      ranks.first.FinishPiece(3, 1);
    }
    CHECK(ranks.first.TakePiece(3) == std::nullopt);
    REQUIRE(ranks.first.Await(1));
    // The other rank arrives when all items are done, and the first rank is in the next call.
    REQUIRE(ranks.first.Begin());
    ranks.first.Arrive({}, {});
    CHECK(ranks.second.TakePiece(3) == std::nullopt);
    REQUIRE(ranks.second.Await(1));
    REQUIRE(ranks.second.Begin());
    ranks.second.Arrive({}, {});
    REQUIRE(ranks.first.Await(0));
    REQUIRE(ranks.second.Await(0));
    // Both take an item of this call, and the step is done with the last item.
    REQUIRE(ranks.second.TakePiece(2) == uint64_t{0});
    REQUIRE(ranks.first.TakePiece(2) == uint64_t{1});
    CHECK(ranks.first.TakePiece(2) == std::nullopt);
    ranks.first.FinishPiece(2, 1);
    ranks.second.FinishPiece(2, 1);
    REQUIRE(ranks.first.Await(1));
    REQUIRE(ranks.second.Await(1));
    ranks.ComeToNextCall();  // a call without work items
  }
}

TEST_CASE("HostSegment: a rank that has done its work items waits for the others", "[collective]") {
  TwoRanks ranks;
  ranks.ComeToNextCall();
  REQUIRE(ranks.second.TakePiece(2) == uint64_t{0});
  REQUIRE(ranks.first.TakePiece(2) == uint64_t{1});
  ranks.first.FinishPiece(2, 1);
  ranks.first.Stop(Error(ErrorCode::kPeerFailed, "enough"));  // or it would wait for ever
  CHECK_FALSE(ranks.first.Await(1));
}

TEST_CASE("HostSegment: a rank that leaves does not wait for one that has ended", "[collective]") {
  const HostSegmentShape shape{.rank_count = 2, .slot_bytes = 64, .buffer_bytes = 64};
  const test::SharedBytes memory(HostSegment::BytesNeeded(shape));
  LostHealth health;
  HostSegment alone(memory.bytes(), shape, 0, WaitMode::kSleep, health);
  CHECK_FALSE(alone.LeaveInPeace());
  CHECK(health.check_count == 1);  // and no more until the limit
}

}  // namespace
}  // namespace lmdbio::sync
