// Goal: each call of NCCL, and of the driver beside it, may fail once at each place. The rank gets
// the name of the call, the other one the name of the rank, and neither hangs. Method: ranks are
// processes with a GPU each; the call fails at once, or later in the state of the communicator.
#include <array>
#include <chrono>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/ranks/health/host_health.h"
#include "lmdbio/sync/over_device/rank_agreement.h"
#include "tests/device/failing_calls.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/ranks_on_file.h"
#include "tests/sync/over_nccl/nccl_rank.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::ByNccl;
using test::EmulatedNccl;
using test::Good;
using test::Must;
using test::RankOnDevice;
using test::RanksOnFile;
using Clock = std::chrono::steady_clock;

constexpr NcclCode kInternalError = 3;

enum class FaultKind { kDriver, kAtOnce, kLater };

// A call that fails on one rank.
struct NcclFault {
  FaultKind kind;
  int victim;
  std::string name;
  uint64_t nth = 1;
  NcclCode code = kInternalError;  // of NCCL
  int looks = 1;
};

// The end of a small job on one rank.
enum class NcclJobStage { kAllRight, kNotMade, kFailed };

struct NcclJobEnd {
  NcclJobStage stage = NcclJobStage::kAllRight;
  bool is_met = false;  // the fault
};

class NcclJob {
 public:
  NcclJob(ranks::Group& group, const NcclFault& fault)
      : group_(group), fault_(fault), is_victim_(group.rank() == fault.victim) {}

  // Collective. Returns: whether the fault was met
  bool Run() {
    const EmulatedNccl nccl(fault_.nth, fault_.looks);
    const size_t kept = KeptCount();
    auto opened = nccl.gpu().Open(group_.rank());
    {
      const auto health = Good(ranks::HostHealth::Create(group_, 60s));
      RankOnDevice rank(group_, opened, {.health = health.get(), .make = ByNccl(*health)});
      Must(group_.Barrier());
      if (is_victim_) Arm(nccl);
      Use(rank);
      Must(group_.Barrier());  // a health that is gone is a failure of its rank
      rank.Drop();
      end_.is_met = !is_victim_ || nccl.gpu()->FaultsLeft() + nccl->FaultsLeft() == 0;
    }
    const Status released = opened->release_failure();
    opened.reset();
    const std::vector<NcclJobEnd> ends = Good(GatherFacts(group_, end_));
    const NcclJobEnd& victims = ends[static_cast<size_t>(fault_.victim)];
    if (!victims.is_met) return false;
    if (end_.stage != victims.stage && !MayEndAlone()) Complain("the ranks end in different ways");
    if (nccl->CommCount() != (IsLeft() ? 1 : 0)) Complain("communicators are left");
    const bool is_released = is_victim_ && end_.stage == NcclJobStage::kAllRight;
    if (is_victim_ && error_.empty() && released && !IsLeft()) Complain("nobody is told");
    if (end_.stage == NcclJobStage::kFailed) {
      if (KeptCount() != kept + 1) Complain("the memory is not kept");
    } else if (nccl.gpu()->Objects().total() > (is_released ? 1 : 0)) {
      Complain("objects are left");
    }
    return true;
  }

  const std::string& complaints() const { return complaints_; }

 private:
  void Complain(const std::string& what) {
    complaints_ +=
        fmt::format("victim {}, {} {}, kind {}, code {}: {}; ", fault_.victim, fault_.name,
                    fault_.nth, static_cast<int>(fault_.kind), fault_.code, what);
  }

  // When all are done, each rank destroys its communicator for itself. The other one may have ended
  // well if the failure is in that, or in the last looks before it.
  bool MayEndAlone() const {
    return !is_victim_ && end_.stage == NcclJobStage::kAllRight &&
           (fault_.name == "ncclCommDestroy" || fault_.name == "ncclCommGetAsyncError");
  }

  // The stand-in keeps a communicator whose end has failed.
  bool IsLeft() const {
    return is_victim_ && fault_.kind == FaultKind::kAtOnce &&
           (fault_.name == "ncclCommAbort" || fault_.name == "ncclCommDestroy");
  }

  void Arm(const EmulatedNccl& nccl) const {
    const char* const name = fault_.name.c_str();
    switch (fault_.kind) {
      case FaultKind::kDriver:
        return nccl.gpu()->FailCall(name, fault_.nth, test::kUnknownCode);
      case FaultKind::kAtOnce:
        return nccl->FailCall(name, fault_.nth, fault_.code);
      case FaultKind::kLater:
        return nccl->FailLater(name, fault_.nth, fault_.code);
    }
  }

  void Use(RankOnDevice& rank) {
    const Status made = rank.Make(group_);
    if (!made) return Fails(NcclJobStage::kNotMade, made.error());
    const Status called = Call(rank);
    if (!called) GiveUp(rank, called.error());
    rank.Drain();
    if (!called) return;
    const Status left = rank.made()->LeaveInPeace();
    if (!left) GiveUp(rank, left.error());
  }

  static Status Call(RankOnDevice& rank) {
    for (int i = 0; i < 2; ++i) {
      LMDBIO_TRY_VOID(rank.AllReduce({}, {.count = 100}, {ReduceOp::kSum, 0.5}));
    }
    LMDBIO_TRY_VOID(rank.Broadcast({}, {.count = 100}, 1));
    return {};
  }

  // As a synchronizer. The other rank may wait for this one on its stream.
  void GiveUp(RankOnDevice& rank, const Error& error) {
    rank.health().GiveUp(error);
    Fails(NcclJobStage::kFailed, error);
  }

  void Fails(NcclJobStage stage, const Error& error) {
    end_.stage = stage;
    error_ = error.message();
    if (is_victim_ && fault_.name == "ncclGetVersion") {
      if (error.code() != ErrorCode::kUnsupported) Complain("not kUnsupported: " + error_);
      return;
    }
    const std::string wrong = test::WrongEnd(error, group_.rank(), fault_.victim);
    if (!wrong.empty()) Complain(wrong);
    if (!is_victim_) return;
    // A state is that of the call which is in progress.
    const std::string name = fault_.name == "ncclCommGetAsyncError" ? ": nccl" : fault_.name;
    if (error_.find(name) == std::string::npos) Complain("does not name the call: " + error_);
    const bool has_words = error_.find("a fault of the test") != std::string::npos;
    if (has_words != (fault_.kind != FaultKind::kDriver)) Complain("other words: " + error_);
  }

  ranks::Group& group_;
  const NcclFault fault_;
  const bool is_victim_;
  NcclJobEnd end_;
  std::string error_;
  std::string complaints_;
};

// For each number of a call until the job does not come to it. Returns: that number
uint64_t FailEachOf(ranks::Group& group, NcclFault fault, std::string& complaints) {
  for (fault.nth = 1;; ++fault.nth) {
    NcclJob job(group, fault);
    const bool is_met = job.Run();
    complaints += job.complaints();
    if (!is_met) return fault.nth;
  }
}

TEST_CASE("Each call of NCCL fails once at each place", "[nccl_faults]") {
  const int victim = GENERATE(0, 1);
  CAPTURE(victim);
  RanksOnFile ranks(2, [&](ranks::Group& group) {
    std::string complaints;
    const NcclTable table;
    ForEachNcclFunction(table, [&](const char* name, auto) {
      const std::string its_name = name;
      if (its_name == "ncclGetErrorString" || its_name == "ncclGetLastError") return;
      const NcclFault fault = {.kind = FaultKind::kAtOnce, .victim = victim, .name = its_name};
      const bool is_of_rank_0 = its_name == "ncclGetUniqueId" && victim == 1;
      // Communicators end in peace by another call.
      const bool is_never = is_of_rank_0 || its_name == "ncclCommAbort";
      const uint64_t met = FailEachOf(group, fault, complaints) - 1;
      if ((met == 0) != is_never) complaints += its_name + " is not as expected; ";
    });
    return complaints;
  });
  CHECK(ranks.Reports() == "");
}

TEST_CASE("Each call of NCCL that is in progress fails once at each place", "[nccl_faults]") {
  const int victim = GENERATE(0, 1);
  CAPTURE(victim);
  RanksOnFile ranks(2, [&](ranks::Group& group) {
    std::string complaints;
    for (const char* const name :
         {"ncclCommInitRankConfig", "ncclAllReduce", "ncclBroadcast", "ncclCommFinalize"}) {
      const NcclFault fault = {.kind = FaultKind::kLater, .victim = victim, .name = name};
      if (FailEachOf(group, fault, complaints) == 1) complaints += "is not met; ";
    }
    return complaints;
  });
  CHECK(ranks.Reports() == "");
}

TEST_CASE("Each call of the driver beside NCCL fails once at each place", "[nccl_faults]") {
  const int victim = GENERATE(0, 1);
  CAPTURE(victim);
  RanksOnFile ranks(2, [&](ranks::Group& group) {
    const auto run = [&](const std::string& name, uint64_t nth, std::string& complaints) {
      NcclJob job(group, {.kind = FaultKind::kDriver, .victim = victim, .name = name, .nth = nth});
      const bool is_met = job.Run();
      complaints += job.complaints();
      return is_met;
    };
    return test::FailAtEachPlace(std::numeric_limits<uint64_t>::max(), 5, run);
  });
  CHECK(ranks.Reports() == "");
}

TEST_CASE("Ranks with different versions of NCCL are refused by name", "[nccl_faults]") {
  RanksOnFile ranks(3, [&](ranks::Group& group) -> std::string {
    const EmulatedNccl nccl;
    if (group.rank() == 2) nccl->SetVersion(22602);
    ranks::SoloHealth health;
    RankOnDevice rank(group, nccl.gpu().Open(group.rank()), {.make = ByNccl(health)});
    const Status made = rank.Make(group);
    if (made || made.error().code() != ErrorCode::kUnsupported) return "another end";
    if (made.error().message() !=
        "the ranks cannot use NCCL: rank 0 has NCCL 2.28.9, and rank 2 has NCCL 2.26.2") {
      return made.error().message();
    }
    return nccl->CallCount("ncclGetUniqueId") == 0 ? "" : "an id was made";
  });
  CHECK(ranks.Reports() == "");
}

// --- Failures that NCCL may see before the health does -----------------------------------------

// Runs one call on rank 0, which fails with this code, while a rank has given up meanwhile or not.
std::string CallAfter(ranks::Group& group, bool is_known, NcclCode code) {
  const EmulatedNccl nccl;
  const auto health = Good(ranks::HostHealth::Create(group, 60s));
  RankOnDevice rank(group, nccl.gpu().Open(group.rank()),
                    {.health = health.get(), .make = ByNccl(*health)});
  Must(rank.Make(group));
  if (group.rank() == 1) {
    Must(group.Barrier());
    if (is_known) health->GiveUp(Error(ErrorCode::kInternal, "it is tired"));
    Must(group.Barrier());
    return "";
  }
  NcclCommSetup setup{.table = Good(LoadNccl(kNcclLibrary)).table,
                      .context = rank.gpu().context(),
                      .check = [&health] { return health->Check(); },
                      .give_up = [](const Error&) {}};
  const auto solo = ranks::SoloGroup();
  const auto comm = Good(NcclComm::Make(*solo, std::move(setup)));
  nccl->FailCall("ncclAllReduce", 1, code);
  const auto memory = Good(rank.gpu().Allocate(64));
  Must(group.Barrier());
  const auto began = Clock::now();
  const Status failed = comm->AllReduce({memory.begin(), 4}, ReduceOp::kSum, rank.stream());
  const bool has_waited = Clock::now() - began >= ranks::kReasonLimit;
  Must(group.Barrier());
  if (failed) return "no error";
  const bool may_be_peer = code == nccl_code::kRemoteError || code == nccl_code::kSystemError;
  if (is_known && may_be_peer) {
    const bool is_right = failed.error().code() == ErrorCode::kPeerFailed &&
                          failed.error().message().find("it is tired") != std::string::npos;
    return is_right ? "" : failed.error().message();
  }
  if (failed.error().code() != ErrorCode::kInternal) return failed.error().message();
  return has_waited == may_be_peer ? "" : "another wait";
}

TEST_CASE("A failure that may be that of another rank waits for the name of that rank",
          "[nccl_faults]") {
  const bool is_known = GENERATE(true, false);
  const NcclCode code = GENERATE(nccl_code::kRemoteError, nccl_code::kSystemError, kInternalError);
  CAPTURE(is_known, code);
  RanksOnFile ranks(2, [&](ranks::Group& group) { return CallAfter(group, is_known, code); });
  CHECK(ranks.Reports() == "");
}

TEST_CASE("A failure of work that is enqueued is told after a while", "[nccl_faults]") {
  RanksOnFile ranks(1, [&](ranks::Group& group) -> std::string {
    const EmulatedNccl nccl;
    ranks::SoloHealth health;
    RankOnDevice rank(group, nccl.gpu().Open(0), {.make = ByNccl(health)});
    Must(rank.Make(group));
    Good(rank.AllReduce({}, {.count = 4}, ReduceOp::kSum));
    Must(rank.made()->Check());
    const auto began = Clock::now();
    nccl->FailAll(nccl_code::kRemoteError);
    Status checked = rank.made()->Check();
    while (checked && Clock::now() - began < 30s) checked = rank.made()->Check();
    if (checked) return "no error";
    if (Clock::now() - began < ranks::kReasonLimit) return "too early";
    if (checked.error().code() != ErrorCode::kInternal) return "another code";
    const std::string& text = checked.error().message();
    if (text.find("GPU 0: work on the stream: NCCL: remote process exited") == std::string::npos) {
      return text;
    }
    rank.made()->Poison();
    Must(rank.made()->Check());  // it has ended
    rank.Drain();
    return rank.made()->result_state()->is_void() ? "" : "not void";
  });
  CHECK(ranks.Reports() == "");
}

}  // namespace
}  // namespace lmdbio::sync
