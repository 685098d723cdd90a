// Goal: if a rank is killed or stopped at any step of a call, the others get its name within 5 s,
// though the library waits for that rank for ever. Their streams are done, and their GPUs work.
// Method: ranks are processes; one of them ends itself at a step.
#include <atomic>
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
#include "tests/sync/over_library/emulated_library.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::ByLibrary;
using test::EmulatedGpu;
using test::EmulatedLibrary;
using test::EndClock;
using test::EndPlan;
using test::ExactValuesOfRanks;
using test::FailureReport;
using test::Good;
using test::GpuWorks;
using test::LibraryBoard;
using test::Must;
using test::RankOnDevice;
using test::ValuesOfRanks;
using test::WatchedMeetings;
using test::WrongFailure;
using Clock = std::chrono::steady_clock;
using Side = WatchedMeetings::BarrierSide;

constexpr int kRanks = 3;
constexpr int kCleanCalls = 3;
constexpr auto kSilenceLimit = 3s;

enum class LibraryStep { kBeforeCall, kBeforeMeeting, kAfterMeeting, kInCall, kAfterCall };

struct LibraryEnding {
  LibraryStep step;
  int victim;
  int signal;
};

class LibraryRankThatMayEnd {
 public:
  LibraryRankThatMayEnd(ranks::Group& group, const LibraryBoard& board, const LibraryEnding& ending,
                        EndClock& clock)
      : group_(group),
        ending_(ending),
        clock_(clock),
        gpu_(static_cast<uint64_t>(group.rank()) + 1),
        health_(Good(ranks::HostHealth::Create(group, kSilenceLimit))),
        library_(std::make_shared<EmulatedLibrary>(board, group.rank(),
                                                   [this](int call) { return OnCall(call); })),
        rank_(group, gpu_.Open(0),
              {.health = health_.get(),
               .watch = [this](int barrier, Side side) { OnBarrier(barrier, side); },
               .make = ByLibrary(library_)}) {}

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
    if (At(LibraryStep::kBeforeCall)) End();
    for (int call = 0; call < 3; ++call) {
      rank_.WriteLater(values.offset, mine);
      const auto outcome = rank_.AllReduce({}, values, ReduceOp::kSum);
      if (!outcome) return CheckAfter(outcome.error());
      if (At(LibraryStep::kAfterCall)) End();
    }
    return "no call fails";
  }

 private:
  bool IsVictim() const { return group_.rank() == ending_.victim; }
  bool At(LibraryStep step) const { return IsVictim() && is_fatal_ && ending_.step == step; }

  void End() {
    is_fatal_ = false;
    clock_.NoteEnd();
    ::raise(ending_.signal);
  }

  void OnBarrier(int barrier, Side side) {
    if (barrier != kCleanCalls + 1) return;
    const bool is_before = side == Side::kBefore;
    if (At(is_before ? LibraryStep::kBeforeMeeting : LibraryStep::kAfterMeeting)) End();
  }

  Status OnCall(int call) {
    if (call == kCleanCalls + 1 && At(LibraryStep::kInCall)) End();
    return {};
  }

  std::string CheckAfter(const Error& error) {
    const double seconds = clock_.SecondsSinceEnd();
    std::string wrong = WrongFailure(error, group_.rank(), ending_.victim, seconds);
    const bool is_done =
        Good(LookUntil([this] { return rank_.stream().IsDone(); }, Clock::now() + 5s, {}));
    if (!is_done) wrong += "the stream is not done; ";
    if (rank_.made()->result_state()->is_void()) wrong += "void; ";
    if (!GpuWorks(gpu_, rank_.gpu())) wrong += "the GPU does not work; ";
    const auto again = rank_.AllReduce({}, {.count = 1}, ReduceOp::kSum);
    if (again || again.error().code() != ErrorCode::kPeerFailed) wrong += "a later call; ";
    const size_t kept = KeptCount();
    rank_.Drop();
    if (KeptCount() != kept + 2) wrong += "the memory and the library are not kept; ";
    return FailureReport(wrong, seconds, error);
  }

  ranks::Group& group_;
  const LibraryEnding ending_;
  EndClock& clock_;
  const EmulatedGpu gpu_;
  const std::unique_ptr<ranks::HostHealth> health_;
  std::atomic<bool> is_fatal_ = false;
  const std::shared_ptr<EmulatedLibrary> library_;
  RankOnDevice rank_;
};

void CheckAll(const std::vector<LibraryEnding>& endings) {
  std::vector<EndPlan> plans;
  for (const LibraryEnding& ending : endings) {
    const auto board = std::make_shared<LibraryBoard>(kRanks);
    plans.push_back(
        {.text = fmt::format("step {}, victim {}, signal {}", static_cast<int>(ending.step),
                             ending.victim, ending.signal),
         .rank_count = kRanks,
         .victim = ending.victim,
         .signal = ending.signal,
         .run = [ending, board](ranks::Group& group, EndClock& clock) {
           return LibraryRankThatMayEnd(group, *board, ending, clock).Run();
         }});
  }
  test::CheckEndJobs(plans);
}

TEST_CASE("A rank that is killed at any step of a library's call is named by the others",
          "[library_ends]") {
  std::vector<LibraryEnding> endings;
  for (const int victim : {0, 2}) {
    for (int step = 0; step <= static_cast<int>(LibraryStep::kAfterCall); ++step) {
      endings.push_back({static_cast<LibraryStep>(step), victim, SIGKILL});
    }
  }
  CheckAll(endings);
}

TEST_CASE("A rank that is stopped in a library's call is named, and hears it when it goes on",
          "[library_ends]") {
  CheckAll({{LibraryStep::kBeforeMeeting, 1, SIGSTOP},
            {LibraryStep::kAfterMeeting, 0, SIGSTOP},
            {LibraryStep::kInCall, 1, SIGSTOP},
            {LibraryStep::kInCall, 0, SIGSTOP},
            {LibraryStep::kAfterCall, 2, SIGSTOP}});
}

}  // namespace
}  // namespace lmdbio::sync
