// Goal: if a rank is killed or stopped at any step of a call, the others get its name within 5 s.
// Their streams are done, and their GPUs still work. Method: ranks are processes that share the
// devices of one file; one of them ends itself at a step.
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/ranks/health/host_health.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/end_jobs.h"
#include "tests/sync/over_device/rank_on_device.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::EmulatedGpu;
using test::EndClock;
using test::EndPlan;
using test::FailureReport;
using test::Good;
using test::GpuWorks;
using test::kKillInCall;
using test::kOrders;
using test::kSilenceLimit;
using test::Must;
using test::RankOnDevice;
using test::ValuesOfRanks;
using test::WatchedMeetings;
using test::WrongFailure;
using Clock = std::chrono::steady_clock;
using Side = WatchedMeetings::BarrierSide;

constexpr int kRanks = 3;
constexpr int kCleanCalls = 5;

// The step of a call at which the victim ends.
enum class EndStep {
  kBeforeCall,
  kInAnnounceReady,
  kBeforeFirstMeeting,
  kAfterFirstMeeting,
  kInAwaitReady,
  kInLaunch,
  kInAnnounceDone,
  kBeforeSecondMeeting,
  kAfterSecondMeeting,
  kInAwaitDone,
  kAfterCall,
};

struct Ending {
  OrderKind order;
  EndStep step;
  int victim;
  int signal;
  int gpu_count = 1;  // the lowest ranks are leaders
  uint64_t one_shot_bytes = 0;
};

// The function of the driver that announces, or that awaits; null: the order calls none.
const char* AnnounceCall(OrderKind order) {
  return order == OrderKind::kMark ? "cuStreamWriteValue64" : "cuEventRecord";
}
const char* AwaitCall(OrderKind order) {
  switch (order) {
    case OrderKind::kEvent:
      return "cuStreamWaitEvent";
    case OrderKind::kMark:
      return "cuStreamBatchMemOp";
    default:
      return nullptr;
  }
}

class RankThatMayEnd {
 public:
  RankThatMayEnd(ranks::Group& group, const Ending& ending, EndClock& clock)
      : group_(group),
        ending_(ending),
        clock_(clock),
        gpu_(static_cast<uint64_t>(group.rank()) + 1),
        health_(Good(ranks::HostHealth::Create(group, kSilenceLimit))),
        rank_(group, gpu_.Open(group.rank() % ending.gpu_count),
              {.options = {.arena_bytes = 4096,
                           .order = ending.order,
                           .one_shot_bytes = ending.one_shot_bytes},
               .health = health_.get(),
               .watch = [this](int barrier, Side side) { OnBarrier(barrier, side); }}) {}

  std::string Run() {
    Must(rank_.Make(group_));
    for (const std::string& note : rank_.notes()) return note;
    const DeviceValues values = {.offset = 64, .count = 200};
    const ValuesOfRanks all(group_.size(), values, 1);
    const std::string& mine = all.of[static_cast<size_t>(group_.rank())];
    for (int call = 0; call < kCleanCalls; ++call) {
      rank_.WriteLater(values.offset, mine);
      const CallOutcome outcome = Good(rank_.AllReduce({}, values, ReduceOp::kSum));
      const std::string found = rank_.ReadNow(values.offset, mine.size());
      if (outcome != CallOutcome::kDone || !all.Compare(found, ReduceOp::kSum).empty()) {
        return "a call before the end is wrong";
      }
    }
    is_fatal_ = true;
    const uint64_t waits_before = gpu_->CallCount("cuStreamWaitEvent");
    if (IsVictim()) ArmDriver();
    if (At(EndStep::kBeforeCall)) End();
    for (int call = 0; call < 3; ++call) {
      rank_.WriteLater(values.offset, mine);
      const auto outcome = rank_.AllReduce({}, values, ReduceOp::kSum);
      if (!outcome) {
        const bool has_waits = gpu_->CallCount("cuStreamWaitEvent") > waits_before;
        return CheckAfter(outcome.error(), has_waits);
      }
      if (At(EndStep::kAfterCall)) End();
    }
    return "no call fails";
  }

 private:
  bool IsVictim() const { return group_.rank() == ending_.victim; }
  bool At(EndStep step) const { return IsVictim() && is_fatal_ && ending_.step == step; }

  void End() {
    is_fatal_ = false;
    clock_.NoteEnd();
    ::raise(ending_.signal);
  }

  void OnBarrier(int barrier, Side side) {
    const bool is_first = barrier == 2 * kCleanCalls + 1;
    const bool is_second = barrier == 2 * kCleanCalls + 2;
    const bool is_before = side == Side::kBefore;
    if ((is_first && At(is_before ? EndStep::kBeforeFirstMeeting : EndStep::kAfterFirstMeeting)) ||
        (is_second &&
         At(is_before ? EndStep::kBeforeSecondMeeting : EndStep::kAfterSecondMeeting))) {
      End();
    }
  }

  // Ends the victim in a call of the driver.
  void ArmDriver() {
    const auto arm = [this](const char* name, uint64_t nth) {
      clock_.NoteEnd();
      gpu_->FailCall(name, nth, kKillInCall);
    };
    switch (ending_.step) {
      case EndStep::kInAnnounceReady:
        return arm(AnnounceCall(ending_.order), 1);
      case EndStep::kInAnnounceDone:
        return arm(AnnounceCall(ending_.order), 2);
      case EndStep::kInLaunch:
        return arm("cuLaunchKernel", 1);
      case EndStep::kInAwaitReady:
      case EndStep::kInAwaitDone:
        return arm(AwaitCall(ending_.order), 1);
      default:
        return;
    }
  }

  // has_waits  this rank's stream waits for events of others
  std::string CheckAfter(const Error& error, bool has_waits) {
    const double seconds = clock_.SecondsSinceEnd();
    std::string wrong = WrongFailure(error, group_.rank(), ending_.victim, seconds);
    // The stand-in never completes the record of a process that has ended.
    const bool waits_for_ever = ending_.order == OrderKind::kEvent && has_waits;
    const bool is_done = Good(LookUntil([this] { return rank_.stream().IsDone(); },
                                        Clock::now() + (waits_for_ever ? 50ms : 5000ms), {}));
    if (!IsVictim() && is_done == waits_for_ever) wrong += "the stream is not as expected; ";
    if (!GpuWorks(gpu_, rank_.gpu())) wrong += "the GPU does not work; ";
    const size_t kept = KeptCount();
    rank_.Drop();
    if (KeptCount() != kept + 2) wrong += "the memory is not kept; ";
    return FailureReport(wrong, seconds, error);
  }

  ranks::Group& group_;
  const Ending ending_;
  EndClock& clock_;
  const EmulatedGpu gpu_;
  const std::unique_ptr<ranks::HostHealth> health_;
  bool is_fatal_ = false;
  RankOnDevice rank_;
};

void CheckAll(const std::vector<Ending>& endings) {
  std::vector<EndPlan> plans;
  for (const Ending& ending : endings) {
    plans.push_back(
        {.text = fmt::format("order {}, step {}, one shot {}, GPUs {}, victim {}, signal {}",
                             NameOf(ending.order), static_cast<int>(ending.step),
                             ending.one_shot_bytes, ending.gpu_count, ending.victim, ending.signal),
         .rank_count = kRanks,
         .victim = ending.victim,
         .signal = ending.signal,
         .run = [ending](ranks::Group& group, EndClock& clock) {
           return RankThatMayEnd(group, ending, clock).Run();
         }});
  }
  test::CheckEndJobs(plans);
}

TEST_CASE("A rank that is killed at any step is named by the others, whose streams are done",
          "[rank_ends]") {
  std::vector<Ending> endings;
  struct Place {
    int gpu_count;
    int victim;
    bool is_leader;
    uint64_t one_shot_bytes = 0;
  };
  for (const OrderKind order : kOrders) {
    for (const Place& place : {Place{1, 0, true}, Place{1, 1, false}, Place{2, 1, true},
                               Place{2, 1, true, 1024}, Place{2, 2, false, 1024}}) {
      for (int step = 0; step <= static_cast<int>(EndStep::kAfterCall); ++step) {
        const auto at = static_cast<EndStep>(step);
        const bool is_of_leader = at == EndStep::kInAwaitReady || at == EndStep::kInLaunch ||
                                  at == EndStep::kInAnnounceDone;
        const bool is_of_others = at == EndStep::kInAwaitDone;
        const bool awaits = at == EndStep::kInAwaitReady || at == EndStep::kInAwaitDone;
        if (place.is_leader ? is_of_others : is_of_leader) continue;
        if (awaits && AwaitCall(order) == nullptr) continue;
        endings.push_back(
            {order, at, place.victim, SIGKILL, place.gpu_count, place.one_shot_bytes});
      }
    }
  }
  CheckAll(endings);
}

TEST_CASE("A rank that is stopped at a step is named by the others, and hears it when it goes on",
          "[rank_ends]") {
  std::vector<Ending> endings;
  for (const OrderKind order : kOrders) {
    endings.push_back({order, EndStep::kAfterFirstMeeting, 0, SIGSTOP});
    endings.push_back({order, EndStep::kBeforeFirstMeeting, 1, SIGSTOP});
    endings.push_back({order, EndStep::kBeforeSecondMeeting, 0, SIGSTOP});
    endings.push_back({order, EndStep::kAfterSecondMeeting, 1, SIGSTOP});
    endings.push_back({order, EndStep::kAfterFirstMeeting, 1, SIGSTOP, 2, 1024});
  }
  CheckAll(endings);
}

}  // namespace
}  // namespace lmdbio::sync
