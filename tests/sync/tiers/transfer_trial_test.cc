// Goal: all ranks make the same calls, get the times of rank 0, and stop when its time is over.
#include "lmdbio/sync/tiers/transfer_trial.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
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

constexpr int64_t kCallNs = 100'000;  // of a call, besides a nanosecond for each byte
constexpr int64_t kByteNs = 20;       // the rate of the network
constexpr int64_t kBucketBytes = 448 << 10;

// A network that limits the rate by a bucket: what fits into it passes at once. Every fifth call is
// disturbed. The clock is that of its rank.
class BucketNetwork final : public ForwardedCollectives {
 public:
  explicit BucketNetwork(std::unique_ptr<Collectives> inner)
      : ForwardedCollectives(std::move(inner)) {}

  Result<CallOutcome> AllReduce(const CallTag& tag, const Values& values,
                                const Reduction& reduction) override {
    const auto bytes = static_cast<int64_t>(values.count * ElementBytes(values.type));
    Pass(kCallNs + bytes);
    in_bucket_ -= bytes;
    if (in_bucket_ < 0) Pass(-in_bucket_ * kByteNs);
    if (++call_count_ % 5 == 0) now_ += std::chrono::milliseconds(1);
    return ForwardedCollectives::AllReduce(tag, values, reduction);
  }
  // The first exchange waits for the other ranks, which write their memory.
  Result<CallOutcome> Broadcast(const CallTag& tag, MutableBytes bytes, int root) override {
    now_ += std::exchange(lateness_, nanoseconds(0));
    return ForwardedCollectives::Broadcast(tag, bytes, root);
  }
  TransferClock clock() const {
    return [this] { return now_; };
  }
  int call_count() const { return call_count_; }

 private:
  void Pass(int64_t ns) {
    now_ += nanoseconds(ns);
    in_bucket_ = std::min(in_bucket_ + ns / kByteNs, kBucketBytes);
  }

  nanoseconds now_{0};
  nanoseconds lateness_ = std::chrono::seconds(1);
  int64_t in_bucket_ = kBucketBytes;
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
    BucketNetwork collectives(Good(HostCollectives(
        group, health, {.staging_bytes = 1 << 20, .registered_bytes = registered_bytes})));
    const auto rank = static_cast<size_t>(group.rank());
    // The time of other ranks does not count.
    const nanoseconds own_time = rank == 0 ? time : nanoseconds(1);
    run.samples[rank] = Good(TryTransfers(collectives, own_time, collectives.clock()));
    run.call_counts[rank] = collectives.call_count();
  });
  return run;
}

TEST_CASE("A trial finds the time of a call in a row of calls", "[transfer_trial]") {
  const uint64_t registered_bytes = GENERATE(0, 32 << 20);
  CAPTURE(registered_bytes);
  const TrialRun run = RunTrial(3, std::chrono::seconds(1000), registered_bytes);
  for (size_t rank = 0; rank < 3; ++rank) {
    CHECK(run.samples[rank] == run.samples[0]);
    CHECK(run.call_counts[rank] == run.call_counts[0]);
    REQUIRE(run.samples[rank].size() == kTransferTrialBytes.size());
  }
  for (size_t i = 0; i < kTransferTrialBytes.size(); ++i) {
    const TransferSample& sample = run.samples[0][i];
    CAPTURE(sample.bytes);
    CHECK(sample.bytes == kTransferTrialBytes[i]);
    const auto bytes = static_cast<int64_t>(sample.bytes);
    // A call of few bytes waits for the other ranks, and one of many for the network.
    const int64_t expected_ns = std::max(kCallNs + bytes, kByteNs * bytes);
    CHECK(sample.ns <= expected_ns + expected_ns / 20);  // a large call is more than the bucket
    CHECK(sample.ns >= expected_ns - kByteNs);
  }
}

TEST_CASE("A trial begins no size for which rank 0 has no time", "[transfer_trial]") {
  const TrialRun run = RunTrial(2, std::chrono::milliseconds(100), 0);
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(run.samples[rank].size() > 3);
    CHECK(run.samples[rank].size() < kTransferTrialBytes.size());
    CHECK(run.samples[rank] == run.samples[0]);
    CHECK(run.call_counts[rank] == run.call_counts[0]);
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
