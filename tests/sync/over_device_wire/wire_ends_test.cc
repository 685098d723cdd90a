// Goal: if a rank is killed or stopped at any step of a reduction, or its driver fails there, the
// others get its name within 5 s. Their streams are done, and their GPUs still work. Method: ranks
// are processes; one of them ends itself in a call of its driver, or beside one of its wire.
#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/health/host_health.h"
#include "lmdbio/sync/over_device/rank_agreement.h"
#include "tests/device/failing_calls.h"
#include "tests/ranks/wide.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/end_jobs.h"
#include "tests/sync/over_device/ranks_on_file.h"
#include "tests/sync/over_device_wire/rank_on_wire.h"

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
using test::kSilenceLimit;
using test::Must;
using test::RankOnWire;
using test::RanksOnFile;
using test::WatchedWire;
using test::WrongFailure;
using Step = WatchedWire::WireStep;
using WireSide = WatchedWire::StepSide;

constexpr int kWireRanks = 3;
constexpr int kVictim = 1;
constexpr DeviceValues kValuesOnWire = {.offset = 16, .count = 300};

// The place at which the victim ends: in a call of its driver, or beside one of its wire.
struct WireEnding {
  WireAlgorithm algorithm;
  int signal;
  std::string call = "";  // of the driver; "": of the wire
  Step step = Step::kStartSend;
  WireSide side = WireSide::kBefore;
  uint64_t nth = 1;

  std::string Text() const {
    return fmt::format("{}, signal {}, {} {} {} {}", NameOf(algorithm), signal, call,
                       static_cast<int>(step), static_cast<int>(side), nth);
  }
};

WireTable SmallChunks(WireAlgorithm algorithm) { return OneWireAlgorithm(algorithm, 200, 2); }

class RankAtWireEnd {
 public:
  RankAtWireEnd(ranks::Group& group, const WireEnding& ending, EndClock& clock)
      : group_(group),
        ending_(ending),
        clock_(clock),
        gpu_(static_cast<uint64_t>(group.rank()) + 1),
        health_(Good(ranks::HostHealth::Create(group, kSilenceLimit))),
        rank_(group, gpu_.Open(),
              {.options = {.table = SmallChunks(ending.algorithm)},
               .watch = [this](Step step, WireSide side) { OnStep(step, side); },
               .health = health_.get()}) {}

  std::string Run() {
    Must(rank_.Make(group_));
    Must(rank_.AllReduce(kValuesOnWire, ReduceOp::kSum));
    rank_.Drain();
    Must(group_.Barrier());
    if (group_.rank() == kVictim) Arm();
    for (int call = 0; call < 50; ++call) {
      const Status done = rank_.AllReduce(kValuesOnWire, ReduceOp::kSum);
      if (!done) return CheckAfter(done.error());
    }
    return "no call fails";
  }

 private:
  void Arm() {
    clock_.NoteEnd();
    if (ending_.call.empty()) {
      left_ = ending_.nth;
    } else {
      gpu_->FailCall(ending_.call.c_str(), ending_.nth, kKillInCall);
    }
  }

  void OnStep(Step step, WireSide side) {
    if (left_ == 0 || step != ending_.step || side != ending_.side || --left_ > 0) return;
    clock_.NoteEnd();
    ::raise(ending_.signal);
  }

  std::string CheckAfter(const Error& error) {
    const double seconds = clock_.SecondsSinceEnd();
    std::string wrong = WrongFailure(error, group_.rank(), kVictim, seconds);
    rank_.Drain();
    if (!GpuWorks(gpu_, rank_.gpu())) wrong += "the GPU does not work; ";
    rank_.Drop();
    return FailureReport(wrong, seconds, error);
  }

  ranks::Group& group_;
  const WireEnding ending_;
  EndClock& clock_;
  const EmulatedGpu gpu_;
  const std::unique_ptr<ranks::HostHealth> health_;
  uint64_t left_ = 0;  // steps until the end; 0: it does not end at one
  RankOnWire rank_;
};

void CheckAll(const std::vector<WireEnding>& endings) {
  std::vector<EndPlan> plans;
  for (const WireEnding& ending : endings) {
    plans.push_back({.text = ending.Text(),
                     .rank_count = kWireRanks,
                     .victim = kVictim,
                     .signal = ending.signal,
                     .run = [ending](ranks::Group& group, EndClock& clock) {
                       return RankAtWireEnd(group, ending, clock).Run();
                     }});
  }
  test::CheckEndJobs(plans);
}

constexpr std::array kByKernels{WireAlgorithm::kRing, WireAlgorithm::kHalving,
                                WireAlgorithm::kDirect};
constexpr std::array kCalls{"cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuLaunchKernel",
                            "cuEventRecord"};
constexpr std::array kSteps{Step::kStartSend, Step::kStartReceive, Step::kAwaitSend,
                            Step::kAwaitReceive};

TEST_CASE("A rank that is killed at any step is named by the others, whose streams are done",
          "[wire_ends]") {
  std::vector<WireEnding> endings;
  // One object drives the wire for all algorithms. Each has half of the places, and the next one
  // has the others.
  const auto add = [&](uint64_t sum, const WireEnding& ending) {
    if (test::IsWide() || sum % 2 == 0) endings.push_back(ending);
  };
  for (uint64_t i = 0; i < kByKernels.size(); ++i) {
    for (uint64_t call = 0; call < kCalls.size(); ++call) {
      for (const uint64_t nth : {1, 2, 3})
        add(i + call + nth, {kByKernels[i], SIGKILL, kCalls[call], {}, {}, nth});
    }
    for (uint64_t step = 0; step < kSteps.size(); ++step) {
      for (const WireSide side : {WireSide::kBefore, WireSide::kAfter}) {
        for (const uint64_t turn : {0, 1}) {
          const uint64_t sum = i + step + static_cast<uint64_t>(side) + turn;
          add(sum, {kByKernels[i], SIGKILL, "", kSteps[step], side, 1 + 2 * turn});
        }
      }
    }
  }
  endings.push_back({WireAlgorithm::kDoubling, SIGKILL, "cuMemcpyDtoHAsync"});
  endings.push_back({WireAlgorithm::kDoubling, SIGKILL, "cuMemcpyHtoDAsync"});
  CheckAll(endings);
}

TEST_CASE("A rank that is stopped at a step is named by the others, and hears it when it goes on",
          "[wire_ends]") {
  std::vector<WireEnding> endings;
  for (const WireAlgorithm algorithm : kByKernels) {
    for (const Step step : kSteps) {
      endings.push_back({algorithm, SIGSTOP, "", step, WireSide::kBefore, 2});
    }
  }
  CheckAll(endings);
}

// --- A failure at each place -------------------------------------------------------------------

// The end of a small job on one rank.
enum class WireJobStage { kAllRight, kNotMade, kFailed };

struct WireJobEnd {
  WireJobStage stage = WireJobStage::kAllRight;
  bool is_met = false;  // the fault
};

// A call of the driver that fails on the victim.
struct WireCallFault {
  WireAlgorithm algorithm;
  std::string name;
  uint64_t nth;
};

class FaultyWireJob {
 public:
  FaultyWireJob(ranks::Group& group, const WireCallFault& fault)
      : group_(group), fault_(fault), is_victim_(group.rank() == kVictim) {}

  // Collective. Returns: whether the fault was met
  bool Run() {
    const EmulatedGpu gpu(fault_.nth);
    auto opened = gpu.Open();
    {
      RankOnWire rank(group_, opened, {.options = {.table = SmallChunks(fault_.algorithm)}});
      Must(group_.Barrier());
      if (is_victim_) gpu->FailCall(fault_.name.c_str(), fault_.nth, test::kUnknownCode);
      Use(rank);
      rank.Drop();
      end_.is_met = !is_victim_ || gpu->FaultsLeft() == 0;
      // The objects of the test itself must not meet it.
      if (!end_.is_met) return Good(GatherFacts(group_, end_))[kVictim].is_met;
    }
    const Status released = opened->release_failure();
    opened.reset();
    const std::vector<WireJobEnd> ends = Good(GatherFacts(group_, end_));
    const WireJobEnd& victims = ends[kVictim];
    if (!victims.is_met) return false;
    if (end_.stage != victims.stage) Complain("the ranks end in different ways");
    const std::string text = !error_.empty() || released ? error_ : released.error().message();
    const bool names_call = text.find(fault_.name) != std::string::npos;
    if (is_victim_ && !names_call) Complain("does not name the call: " + text);
    const bool is_released = is_victim_ && end_.stage == WireJobStage::kAllRight;
    if (gpu->Objects().total() != (is_released ? 1 : 0)) Complain("objects are left");
    return true;
  }

  const std::string& complaints() const { return complaints_; }

 private:
  void Complain(const std::string& what) {
    complaints_ +=
        fmt::format("{}, {} {}: {}; ", NameOf(fault_.algorithm), fault_.name, fault_.nth, what);
  }

  void Use(RankOnWire& rank) {
    const Status made = rank.Make(group_);
    if (!made) return Fails(WireJobStage::kNotMade, made.error());
    Status done;
    for (int i = 0; i < 2 && done; ++i) done = rank.AllReduce(kValuesOnWire, ReduceOp::kSum);
    if (!done) Fails(WireJobStage::kFailed, done.error());
    // A rank may be done before another one fails. Then it fails in its next call.
    const auto ends = Good(GatherFacts(group_, end_));
    if (done && ends[kVictim].stage == WireJobStage::kFailed) {
      const Status next = rank.AllReduce(kValuesOnWire, ReduceOp::kSum);
      if (!next) Fails(WireJobStage::kFailed, next.error());
    }
    rank.Drain();
  }

  void Fails(WireJobStage stage, const Error& error) {
    end_.stage = stage;
    error_ = error.message();
    const std::string wrong = test::WrongEnd(error, group_.rank(), kVictim);
    if (!wrong.empty()) Complain(wrong);
  }

  ranks::Group& group_;
  const WireCallFault fault_;
  const bool is_victim_;
  WireJobEnd end_;
  std::string error_;
  std::string complaints_;
};

TEST_CASE("Each call of the driver fails once at each place", "[wire_ends]") {
  const auto algorithm = GENERATE(WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                                  WireAlgorithm::kHalving, WireAlgorithm::kDirect);
  CAPTURE(NameOf(algorithm));
  RanksOnFile ranks(2, [&](ranks::Group& group) {
    const auto run = [&](const std::string& name, uint64_t nth, std::string& complaints) {
      FaultyWireJob job(group, {algorithm, name, nth});
      const bool is_met = job.Run();
      complaints += job.complaints();
      return is_met;
    };
    return test::FailAtEachPlace(20, 8, run);
  });
  CHECK(ranks.Reports() == "");
}

}  // namespace
}  // namespace lmdbio::sync
