// Goal: if a rank is killed or stopped at any step of a call, the others get its name within 5 s.
// NCCL's kernels end, so their streams are done, and their GPUs still work. Method: ranks are
// processes with a GPU each; one of them ends itself at a step, or in a call of NCCL.
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
#include "tests/sync/over_device/ranks_on_file.h"
#include "tests/sync/over_nccl/nccl_rank.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::ByNccl;
using test::EmulatedNccl;
using test::EndClock;
using test::EndPlan;
using test::ExactValuesOfRanks;
using test::FailureReport;
using test::Good;
using test::GpuWorks;
using test::Must;
using test::RankOnDevice;
using test::RanksOnFile;
using test::ValuesOfRanks;
using test::WatchedMeetings;
using test::WrongFailure;
using Clock = std::chrono::steady_clock;
using Side = WatchedMeetings::BarrierSide;

constexpr int kRanks = 3;
constexpr int kCleanCalls = 3;
constexpr auto kSilenceLimit = 3s;

enum class NcclStep {
  kBeforeCall,
  kBeforeFirstMeeting,
  kAfterFirstMeeting,
  kInCall,   // ncclAllReduce
  kInState,  // ncclCommGetAsyncError
  kBeforeSecondMeeting,
  kAfterSecondMeeting,
  kAfterCall,
};

struct NcclEnding {
  NcclStep step;
  int victim;
  int signal;
};

class NcclRankThatMayEnd {
 public:
  NcclRankThatMayEnd(ranks::Group& group, const NcclEnding& ending, EndClock& clock)
      : group_(group),
        ending_(ending),
        clock_(clock),
        nccl_(static_cast<uint64_t>(group.rank()) + 1, 2),
        health_(Good(ranks::HostHealth::Create(group, kSilenceLimit))),
        rank_(group, nccl_.gpu().Open(group.rank()),
              {.health = health_.get(),
               .watch = [this](int barrier, Side side) { OnBarrier(barrier, side); },
               .make = ByNccl(*health_)}) {}

  std::string Run() {
    Must(rank_.Make(group_));
    const DeviceValues values = {.offset = 64, .count = 200};
    const ValuesOfRanks all = ExactValuesOfRanks(group_.size(), values, 1);
    const std::string& mine = all.of[static_cast<size_t>(group_.rank())];
    for (int call = 0; call < kCleanCalls; ++call) {
      rank_.WriteLater(values.offset, mine);
      Good(rank_.AllReduce({}, values, ReduceOp::kSum));
      const std::string wrong =
          all.Compare(rank_.ReadNow(values.offset, mine.size()), ReduceOp::kSum);
      if (!wrong.empty()) return wrong;
    }
    is_fatal_ = true;
    if (IsVictim()) ArmNccl();
    if (At(NcclStep::kBeforeCall)) End();
    for (int call = 0; call < 3; ++call) {
      rank_.WriteLater(values.offset, mine);
      const auto outcome = rank_.AllReduce({}, values, ReduceOp::kSum);
      if (!outcome) return CheckAfter(outcome.error());
      if (At(NcclStep::kAfterCall)) End();
    }
    return "no call fails";
  }

 private:
  bool IsVictim() const { return group_.rank() == ending_.victim; }
  bool At(NcclStep step) const { return IsVictim() && is_fatal_ && ending_.step == step; }

  void End() {
    is_fatal_ = false;
    clock_.NoteEnd();
    ::raise(ending_.signal);
  }

  void OnBarrier(int barrier, Side side) {
    const bool is_before = side == Side::kBefore;
    const bool is_first = barrier == 2 * kCleanCalls + 1;
    const bool is_second = barrier == 2 * kCleanCalls + 2;
    if ((is_first &&
         At(is_before ? NcclStep::kBeforeFirstMeeting : NcclStep::kAfterFirstMeeting)) ||
        (is_second &&
         At(is_before ? NcclStep::kBeforeSecondMeeting : NcclStep::kAfterSecondMeeting))) {
      End();
    }
  }

  void ArmNccl() {
    if (ending_.step != NcclStep::kInCall && ending_.step != NcclStep::kInState) return;
    clock_.NoteEnd();
    nccl_->FailCall(ending_.step == NcclStep::kInCall ? "ncclAllReduce" : "ncclCommGetAsyncError",
                    1, test::kKillInNccl);
  }

  std::string CheckAfter(const Error& error) {
    const double seconds = clock_.SecondsSinceEnd();
    std::string wrong = WrongFailure(error, group_.rank(), ending_.victim, seconds);
    const bool is_done =
        Good(LookUntil([this] { return rank_.stream().IsDone(); }, Clock::now() + 5s, {}));
    if (!is_done) wrong += "the stream is not done; ";
    if (!rank_.made()->result_state()->is_void()) wrong += "not void; ";
    if (nccl_->CommCount() != 0) wrong += "a communicator is left; ";
    if (!GpuWorks(nccl_.gpu(), rank_.gpu())) wrong += "the GPU does not work; ";
    const auto again = rank_.AllReduce({}, {.count = 1}, ReduceOp::kSum);
    if (again || again.error().code() != ErrorCode::kPeerFailed) wrong += "a later call; ";
    const size_t kept = KeptCount();
    rank_.Drop();
    if (KeptCount() != kept + 1) wrong += "the memory is not kept; ";
    return FailureReport(wrong, seconds, error);
  }

  ranks::Group& group_;
  const NcclEnding ending_;
  EndClock& clock_;
  const EmulatedNccl nccl_;
  const std::unique_ptr<ranks::HostHealth> health_;
  bool is_fatal_ = false;
  RankOnDevice rank_;
};

void CheckAll(const std::vector<NcclEnding>& endings) {
  std::vector<EndPlan> plans;
  for (const NcclEnding& ending : endings) {
    plans.push_back(
        {.text = fmt::format("step {}, victim {}, signal {}", static_cast<int>(ending.step),
                             ending.victim, ending.signal),
         .rank_count = kRanks,
         .victim = ending.victim,
         .signal = ending.signal,
         .run = [ending](ranks::Group& group, EndClock& clock) {
           return NcclRankThatMayEnd(group, ending, clock).Run();
         }});
  }
  test::CheckEndJobs(plans);
}

TEST_CASE(
    "A rank that is killed at any step of NCCL is named by the others, whose streams are done",
    "[nccl_ends]") {
  std::vector<NcclEnding> endings;
  for (const int victim : {0, 2}) {
    for (int step = 0; step <= static_cast<int>(NcclStep::kAfterCall); ++step) {
      endings.push_back({static_cast<NcclStep>(step), victim, SIGKILL});
    }
  }
  CheckAll(endings);
}

TEST_CASE("A rank that is stopped at a step of NCCL is named, and hears it when it goes on",
          "[nccl_ends]") {
  CheckAll({{NcclStep::kBeforeFirstMeeting, 1, SIGSTOP},
            {NcclStep::kAfterFirstMeeting, 0, SIGSTOP},
            {NcclStep::kBeforeSecondMeeting, 1, SIGSTOP},
            {NcclStep::kAfterSecondMeeting, 0, SIGSTOP},
            {NcclStep::kAfterCall, 2, SIGSTOP}});
}

// A rank that never comes into NCCL, and one whose call is never done.
TEST_CASE("A call of NCCL that is never done ends when a rank fails", "[nccl_ends]") {
  const bool is_in_start = GENERATE(true, false);
  CAPTURE(is_in_start);
  RanksOnFile ranks(2, [&](ranks::Group& group) -> std::string {
    const EmulatedNccl nccl(1, 1);
    const auto health = Good(ranks::HostHealth::Create(group, 60s));
    RankOnDevice rank(group, nccl.gpu().Open(group.rank()),
                      {.health = health.get(), .make = ByNccl(*health)});
    Must(group.Barrier());
    const bool is_victim = group.rank() == 1;
    if (!is_in_start) Must(rank.Make(group));
    // The victim fails, and the other one waits for it in the state of its communicator.
    const char* const name = is_in_start ? "ncclCommInitRankConfig" : "ncclAllReduce";
    nccl->FailCall(name, 1, is_victim ? 3 : test::kEndlessInNccl);
    Status failed;
    if (is_in_start) {
      failed = rank.Make(group);
    } else {
      const auto outcome = rank.AllReduce({}, {.count = 9}, ReduceOp::kSum);
      if (!outcome) failed = Fail(outcome.error().Copy());
      if (is_victim) health->GiveUp(failed.error());
      rank.Drain();
    }
    if (failed) return "no error";
    Must(group.Barrier());
    if (nccl->CommCount() != 0) return "a communicator is left";
    const ErrorCode code = is_victim ? ErrorCode::kInternal : ErrorCode::kPeerFailed;
    const bool is_named = failed.error().message().find(name) != std::string::npos;
    const bool names_rank = is_victim || failed.error().message().find("rank 1") == 0;
    return failed.error().code() == code && is_named && names_rank ? "" : failed.error().message();
  });
  CHECK(ranks.Reports() == "");
}

}  // namespace
}  // namespace lmdbio::sync
