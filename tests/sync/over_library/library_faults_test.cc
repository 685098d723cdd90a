// Goal: a call of the library, and each call of the driver beside it, may fail once at each place.
// The rank gets the reason, the other one the name of the rank, and neither hangs. Method: ranks
// are processes.
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/ranks/health/host_health.h"
#include "lmdbio/sync/over_device/rank_agreement.h"
#include "tests/device/failing_calls.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/ranks_on_file.h"
#include "tests/sync/over_library/emulated_library.h"

namespace lmdbio::sync {
namespace {

using namespace std::chrono_literals;
using test::ByLibrary;
using test::EmulatedGpu;
using test::EmulatedLibrary;
using test::Good;
using test::LibraryBoard;
using test::Must;
using test::RankOnDevice;
using test::RanksOnFile;
using Clock = std::chrono::steady_clock;

// A call of the driver, or of the library for the name "", that fails on one rank.
struct LibraryFault {
  int victim;
  std::string name;
  uint64_t nth = 1;
};

// The end of a small job on one rank.
enum class LibraryJobStage { kAllRight, kNotMade, kFailed };

struct LibraryJobEnd {
  LibraryJobStage stage = LibraryJobStage::kAllRight;
  bool is_met = false;  // the fault
};

class LibraryFaultJob {
 public:
  // board  of this job alone
  LibraryFaultJob(ranks::Group& group, const LibraryBoard& board, const LibraryFault& fault)
      : group_(group), board_(board), fault_(fault), is_victim_(group.rank() == fault.victim) {}

  // Collective. Returns: whether the fault was met
  bool Run() {
    const EmulatedGpu gpu(fault_.nth);
    const size_t kept = KeptCount();
    auto opened = gpu.Open(group_.rank());
    {
      const auto health = Good(ranks::HostHealth::Create(group_, 60s));
      const auto library = std::make_shared<EmulatedLibrary>(
          board_, group_.rank(), [this](int call) { return OnCall(call); });
      RankOnDevice rank(group_, opened, {.health = health.get(), .make = ByLibrary(library)});
      Must(group_.Barrier());
      if (is_victim_ && !fault_.name.empty()) {
        gpu->FailCall(fault_.name.c_str(), fault_.nth, test::kUnknownCode);
      }
      Use(rank);
      Must(group_.Barrier());  // a health that is gone is a failure of its rank
      rank.Drop();
      if (is_victim_ && !fault_.name.empty()) end_.is_met = gpu->FaultsLeft() == 0;
    }
    const Status released = opened->release_failure();
    opened.reset();
    const std::vector<LibraryJobEnd> ends = Good(GatherFacts(group_, end_));
    const LibraryJobEnd& victims = ends[static_cast<size_t>(fault_.victim)];
    if (!victims.is_met) return false;
    if (end_.stage != victims.stage) Complain("the ranks end in different ways");
    const bool is_released = is_victim_ && end_.stage == LibraryJobStage::kAllRight;
    if (is_released && released) Complain("nobody is told");
    if (end_.stage == LibraryJobStage::kFailed) {
      if (KeptCount() != kept + 2) Complain("the memory and the library are not kept");
    } else if (gpu->Objects().total() > (is_released ? 1 : 0)) {
      Complain("objects are left");
    }
    return true;
  }

  const std::string& complaints() const { return complaints_; }

 private:
  void Complain(const std::string& what) {
    complaints_ +=
        fmt::format("victim {}, '{}' {}: {}; ", fault_.victim, fault_.name, fault_.nth, what);
  }

  Status OnCall(int call) {
    if (!is_victim_ || !fault_.name.empty()) return {};
    if (call != static_cast<int>(fault_.nth)) return {};
    end_.is_met = true;
    return Fail(ErrorCode::kInternal, "MPI_Allreduce: a fault of the test");
  }

  void Use(RankOnDevice& rank) {
    const Status made = rank.Make(group_);
    if (!made) return Fails(LibraryJobStage::kNotMade, rank, made.error());
    const Status called = Call(rank);
    if (!called) Fails(LibraryJobStage::kFailed, rank, called.error());
    rank.Drain();
    if (!called) return;
    const Status left = rank.made()->LeaveInPeace();
    if (!left) Fails(LibraryJobStage::kFailed, rank, left.error());
  }

  static Status Call(RankOnDevice& rank) {
    for (int i = 0; i < 2; ++i) {
      LMDBIO_TRY_VOID(rank.AllReduce({}, {.count = 100}, {ReduceOp::kSum, 0.5}));
    }
    LMDBIO_TRY_VOID(rank.Broadcast({}, {.count = 100}, 1));
    return {};
  }

  // A synchronizer gives up, too, when a call has failed.
  void Fails(LibraryJobStage stage, RankOnDevice& rank, const Error& error) {
    end_.stage = stage;
    if (is_victim_ && stage == LibraryJobStage::kFailed) {
      const auto again = rank.AllReduce({}, {.count = 1}, ReduceOp::kSum);
      if (again || again.error().code() != ErrorCode::kPeerFailed) Complain("a later call goes on");
    }
    rank.health().GiveUp(error);
    const std::string wrong = test::WrongEnd(error, group_.rank(), fault_.victim);
    if (!wrong.empty()) Complain(wrong);
    const std::string words = fault_.name.empty() ? "a fault of the test" : fault_.name;
    if (is_victim_ && error.message().find(words) == std::string::npos) {
      Complain("does not name the call: " + error.message());
    }
  }

  ranks::Group& group_;
  const LibraryBoard& board_;
  const LibraryFault fault_;
  const bool is_victim_;
  LibraryJobEnd end_;
  std::string complaints_;
};

TEST_CASE("Each call of the library fails once", "[library_faults]") {
  const int victim = GENERATE(0, 1);
  const uint64_t nth = GENERATE(1, 2, 3);
  CAPTURE(victim, nth);
  const LibraryBoard board(2);
  RanksOnFile ranks(2, [&](ranks::Group& group) {
    LibraryFaultJob job(group, board, {.victim = victim, .name = "", .nth = nth});
    return job.Run() ? job.complaints() : "the fault is not met";
  });
  CHECK(ranks.Reports() == "");
}

TEST_CASE("Each call of the driver beside the library fails once at each place",
          "[library_faults]") {
  const int victim = GENERATE(0, 1);
  CAPTURE(victim);
  // A call that was given up still uses its board.
  constexpr size_t kJobsMax = 100;
  std::vector<std::unique_ptr<LibraryBoard>> boards;
  for (size_t i = 0; i < kJobsMax; ++i) boards.push_back(std::make_unique<LibraryBoard>(2));
  RanksOnFile ranks(2, [&](ranks::Group& group) {
    size_t next = 0;
    const auto run = [&](const std::string& name, uint64_t nth, std::string& complaints) {
      LibraryFaultJob job(group, *boards.at(next++), {.victim = victim, .name = name, .nth = nth});
      const bool is_met = job.Run();
      complaints += job.complaints();
      return is_met;
    };
    return test::FailAtEachPlace(std::numeric_limits<uint64_t>::max(), 5, run);
  });
  CHECK(ranks.Reports() == "");
}

// Runs one call on rank 0, which fails, while a rank has given up meanwhile or not.
std::string CallAfter(ranks::Group& group, const LibraryBoard& board, bool is_known) {
  const EmulatedGpu gpu;
  const auto health = Good(ranks::HostHealth::Create(group, 60s));
  Must(group.Barrier());
  if (group.rank() == 1) {
    if (is_known) health->GiveUp(Error(ErrorCode::kInternal, "it is tired"));
    Must(group.Barrier());
    Must(group.Barrier());
    return "";
  }
  const auto library = std::make_shared<EmulatedLibrary>(board, 0, [&](int) -> Status {
    Must(group.Barrier());
    return Fail(ErrorCode::kInternal, "it is broken");
  });
  const auto solo = ranks::SoloGroup();
  RankOnDevice rank(*solo, gpu.Open(0), {});
  const auto kernels = Good(kernels::DeviceKernels::Load(rank.gpu(), test::EmulatedKernelImage()));
  const auto made = Good(LibraryCollectives::Make(*solo,
                                                  {.gpu = rank.gpu(),
                                                   .kernels = kernels.get(),
                                                   .meetings = rank.meetings(),
                                                   .check = [&] { return health->Check(); },
                                                   .library = library},
                                                  4096));
  const auto began = Clock::now();
  const auto failed = made->AllReduce({}, {.count = 4}, ReduceOp::kSum, rank.stream());
  const bool has_waited = Clock::now() - began >= ranks::kReasonLimit;
  Must(group.Barrier());
  if (failed) return "no error";
  if (is_known) {
    const bool is_right = failed.error().code() == ErrorCode::kPeerFailed &&
                          failed.error().message().find("it is tired") != std::string::npos;
    return is_right ? "" : failed.error().message();
  }
  if (failed.error().message() != "it is broken") return failed.error().message();
  return has_waited ? "" : "no wait for the name of a rank";
}

// Meetings of one rank that keep the words of Stop.
class StopListener final : public ForwardedCollectives {
 public:
  explicit StopListener(std::unique_ptr<Collectives> inner)
      : ForwardedCollectives(std::move(inner)) {}
  void Stop(const Error& why) override { words_ = why.message(); }
  const std::string& words() const { return words_; }

 private:
  std::string words_;
};

// The words that the other ranks get when the library fails on a rank of `group`.
std::string WordsForOthers(ranks::Group& group, const LibraryBoard& board) {
  const EmulatedGpu gpu;
  const auto solo = ranks::SoloGroup();
  RankOnDevice rank(*solo, gpu.Open(0), {});
  StopListener meetings(Good(HostCollectives(*solo, rank.health(), {.staging_bytes = 4096})));
  const auto kernels = Good(kernels::DeviceKernels::Load(rank.gpu(), test::EmulatedKernelImage()));
  const auto library = std::make_shared<EmulatedLibrary>(
      board, 0, [](int) { return Status(Fail(ErrorCode::kInternal, "it is broken")); });
  const auto made = Good(LibraryCollectives::Make(group,
                                                  {.gpu = rank.gpu(),
                                                   .kernels = kernels.get(),
                                                   .meetings = meetings,
                                                   .check = [] { return Status(); },
                                                   .library = library},
                                                  4096));
  if (made->AllReduce({}, {.count = 4}, ReduceOp::kSum, rank.stream())) return "no error";
  return meetings.words();
}

// Meetings of one host find the name themselves; messages between hosts carry what they are given.
TEST_CASE("The failure of a library carries the name of its rank to other hosts",
          "[library_faults]") {
  const bool is_one_host = GENERATE(true, false);
  CAPTURE(is_one_host);
  const std::string right = is_one_host ? "it is broken" : "rank 0: it is broken";
  const LibraryBoard board(1);
  RanksOnFile ranks(
      2,
      [&](ranks::Group& group) {
        const std::string words = WordsForOthers(group, board);
        return words == right ? std::string() : words;
      },
      is_one_host ? 2 : 1);
  CHECK(ranks.Reports() == "");
}

TEST_CASE("A failure of the library waits for the name of a rank that may be the reason",
          "[library_faults]") {
  const bool is_known = GENERATE(true, false);
  CAPTURE(is_known);
  const LibraryBoard board(1);
  RanksOnFile ranks(2, [&](ranks::Group& group) { return CallAfter(group, board, is_known); });
  CHECK(ranks.Reports() == "");
}

}  // namespace
}  // namespace lmdbio::sync
