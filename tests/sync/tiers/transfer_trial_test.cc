// Goal: all ranks make the same calls, get the times of rank 0, and stop when its time is over.
#include "lmdbio/sync/tiers/transfer_trial.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/forwarded_collectives.h"
#include "lmdbio/sync/collective/solo_collectives.h"
#include "lmdbio/sync/over_memory/host_collectives.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"

namespace lmdbio::sync {
namespace {

using std::chrono::nanoseconds;
using test::Good;

// A call of n bytes takes 1000 + n ns by the clock of its rank. Every second call is twice as slow.
class SlowCollectives final : public ForwardedCollectives {
 public:
  explicit SlowCollectives(std::unique_ptr<Collectives> inner)
      : ForwardedCollectives(std::move(inner)) {}

  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction& reduction) override {
    const auto bytes = static_cast<int64_t>(values.count * ElementBytes(values.type));
    const bool is_slow = call_count_++ % 2 == 0;
    now_ += nanoseconds((is_slow ? 2 : 1) * (1000 + bytes));
    return ForwardedCollectives::AllReduce(tag, values, reduction);
  }
  TransferClock clock() const {
    return [this] { return now_; };
  }
  int call_count() const { return call_count_; }

 private:
  nanoseconds now_{0};
  int call_count_ = 0;
};

// The samples of all ranks, and the calls of each.
struct TrialRun {
  std::vector<std::vector<TransferSample>> samples;
  std::vector<int> call_counts;
};

TrialRun RunTrial(int rank_count, nanoseconds time, uint64_t registered_bytes) {
  TrialRun run;
  run.samples.resize(static_cast<size_t>(rank_count));
  run.call_counts.resize(static_cast<size_t>(rank_count));
  ranks::RunAsThreads({.rank_count = rank_count}, [&](ranks::Group& group) {
    ranks::SoloHealth health;
    SlowCollectives collectives(Good(HostCollectives(
        group, health, {.staging_bytes = 1 << 20, .registered_bytes = registered_bytes})));
    const auto rank = static_cast<size_t>(group.rank());
    // The time of other ranks does not count.
    const nanoseconds own_time = rank == 0 ? time : nanoseconds(1);
    run.samples[rank] = Good(TryTransfers(collectives, own_time, collectives.clock()));
    run.call_counts[rank] = collectives.call_count();
  });
  return run;
}

TEST_CASE("A trial measures whole calls of each size, and the fastest counts", "[transfer_trial]") {
  const uint64_t registered_bytes = GENERATE(0, 32 << 20);
  CAPTURE(registered_bytes);
  const TrialRun run = RunTrial(3, std::chrono::seconds(1000), registered_bytes);
  std::vector<TransferSample> expected;
  for (const uint64_t bytes : kTransferTrialBytes) {
    expected.push_back({bytes, 1000 + static_cast<int64_t>(bytes)});
  }
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(run.samples[rank] == expected);
    CHECK(run.call_counts[rank] == kTransferTrialCalls * int{kTransferTrialBytes.size()});
  }
}

TEST_CASE("A trial begins no size for which rank 0 has no time", "[transfer_trial]") {
  // Four calls of 64 KiB are expected to take four times as long as those of 16 KiB.
  const TrialRun run = RunTrial(2, std::chrono::microseconds(350), 0);
  for (size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(run.samples[rank].size() == 3);
    CHECK(run.samples[rank].back() == TransferSample{16 << 10, 1000 + (16 << 10)});
    CHECK(run.call_counts[rank] == 3 * kTransferTrialCalls);
  }
  CHECK(RunTrial(2, nanoseconds(0), 0).samples[1].size() == 1);  // the smallest size always
}

TEST_CASE("A rank alone measures nothing", "[transfer_trial]") {
  const auto collectives = SoloCollectives();
  CHECK(Good(TryTransfers(*collectives, std::chrono::seconds(1), [] {
          return nanoseconds(0);
        })).empty());
}

}  // namespace
}  // namespace lmdbio::sync
