// tests/sync/rounds/virtual_ranks.h - ranks of a job in a time of their own.
//
// Each rank is a thread, and one of them runs at a time. Time stands still while a rank runs. It
// passes when a rank sleeps or waits for the others, and then jumps to the next event. So the
// pacing of rounds runs as it is, but without a real sleep, and every run is the same.
#ifndef LMDBIO_TESTS_SYNC_ROUNDS_VIRTUAL_RANKS_H_
#define LMDBIO_TESTS_SYNC_ROUNDS_VIRTUAL_RANKS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "lmdbio/sync/rounds/round_clock.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::test {

// The use that a rank made of a stretch of time.
struct VirtualSpan {
  enum class VirtualUse : uint8_t {
    kSleep,      // it has asked to sleep
    kOversleep,  // it got no core at the end of its sleep
    kWait,       // inside Transport::Wait, in which MPI keeps the core
  };
  VirtualUse use = VirtualUse::kSleep;
  std::chrono::microseconds begin{0};  // since the start of the job
  std::chrono::microseconds end{0};

  std::chrono::microseconds length() const { return end - begin; }
};

struct VirtualJobOptions {
  int rank_count = 2;
  std::chrono::microseconds exchange_time{0};  // from the arrival of the last rank to the reply
  bool keeps_core = false;                     // Transport::blocks_in_wait
};

class VirtualTime;

// A rank: its clock, and its transport, whose exchanges are intersections of all ranks.
class VirtualRank final : public sync::RoundClock, public sync::Transport {
 public:
  VirtualRank(VirtualTime& time, int rank, const VirtualJobOptions& options);

  // The next sleep lasts longer by this time.
  void OversleepOnce(std::chrono::microseconds by) { oversleep_ = by; }
  // Computes: keeps the core for this time.
  void Compute(std::chrono::microseconds duration);

  std::chrono::microseconds elapsed();  // since the start of the job
  const std::vector<VirtualSpan>& spans() const { return spans_; }
  std::chrono::microseconds TotalOf(VirtualSpan::VirtualUse use) const;
  int test_count() const { return test_count_; }
  int wait_count() const { return wait_count_; }
  int exchange_count() const { return exchange_count_; }

  TimePoint Now() override;
  void SleepFor(std::chrono::microseconds duration) override;

  const sync::Ranks& ranks() const override { return ranks_; }
  Status Start(sync::Exchange exchange) override;
  Result<bool> Test() override;
  Result<bool> Wait(std::chrono::microseconds limit) override;
  sync::Reply TakeReply() override;
  bool blocks_in_wait() const override { return options_.keeps_core; }
  void Sleep(std::chrono::microseconds limit, sync::WakeOn) override { SleepFor(limit); }
  bool hears_peers() const override { return true; }
  void Wake() override {}

 private:
  void Note(VirtualSpan::VirtualUse use, TimePoint begin, TimePoint end);

  VirtualTime& time_;
  VirtualJobOptions options_;
  sync::Ranks ranks_;
  std::chrono::microseconds oversleep_{0};
  std::vector<VirtualSpan> spans_;
  int test_count_ = 0;
  int wait_count_ = 0;
  int exchange_count_ = 0;
};

// Runs `body` once for each rank, and returns the ranks when all have ended.
std::vector<std::unique_ptr<VirtualRank>> RunVirtualJob(
    const VirtualJobOptions& options, const std::function<void(VirtualRank& rank)>& body);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_ROUNDS_VIRTUAL_RANKS_H_
