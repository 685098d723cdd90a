// Goal: ranks that cannot reduce on their GPUs say why, the same on every rank, and leave nothing.
// Method: ranks are threads; the hosts and the GPU are the stand-in's.
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lmdbio/base/kept_memory.h"
#include "tests/support/catch.h"
#include "tests/sync/on_device/tensors_on_device.h"
#include "tests/sync/over_device/rank_on_device.h"

namespace lmdbio::sync {
namespace {

using test::Complaints;
using test::EmulatedGpu;
using test::Good;
using test::Must;
using test::RankOnDevice;
using test::RankSetup;
using test::RunRanksOnDevice;
using Found = std::vector<std::string>;

// Every rank has this note and no object.
void ExpectNote(RankOnDevice& rank, const std::string& text, Complaints& complaints) {
  complaints.Expect(rank.made() == nullptr, "the ranks reduce on GPUs");
  complaints.Expect(rank.notes() == Found{"the ranks do not reduce on their GPUs: " + text},
                    rank.notes().empty() ? "no note" : "another note: " + rank.notes().front());
}

TEST_CASE("A rank without kernels is named by all", "[device_refusals]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(3, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), {.has_kernels = group.rank() == 0});
    Must(rank.Make(group));
    ExpectNote(rank, "rank 1 has no kernels for its GPU", mine);
    rank.Leave();
  });
  CHECK(wrong == Found{});
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("Ranks of several hosts do not reduce on GPUs", "[device_refusals]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(
      3,
      [&](ranks::Group& group, Complaints& mine) {
        const auto host = Good(group.SplitByHost());
        RankOnDevice rank(*host, gpu.Open(), {});
        Must(rank.Make(group));
        ExpectNote(rank, "ranks 0 and 2 are on different hosts", mine);
      },
      2);
  CHECK(wrong == Found{});
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("More ranks than a kernel takes do not reduce on GPUs", "[device_refusals]") {
  const int rank_count = GENERATE(64, 65);
  const EmulatedGpu gpu(1);
  const auto shared = gpu.Open();
  const Found wrong = RunRanksOnDevice(rank_count, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, shared, {.options = {.arena_bytes = 64}});
    Must(rank.Make(group));
    if (rank_count == 65) {
      ExpectNote(rank, "there are 65 ranks, and a kernel takes the values of 64", mine);
    } else {
      const auto outcome = rank.AllReduce({}, {.count = 3}, ReduceOp::kSum);
      mine.Expect(outcome == CallOutcome::kDone, "64 ranks do not reduce");
    }
    rank.Leave();
  });
  CHECK(wrong == Found{});
}

TEST_CASE("Ranks with other options are told", "[device_refusals]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(3, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(),
                      {.options = {.arena_bytes = group.rank() == 1 ? 64U : 128U}});
    const Status made = rank.Make(group);
    const ErrorCode expected =
        group.rank() == 1 ? ErrorCode::kInvalidArgument : ErrorCode::kPeerFailed;
    mine.Expect(!made && made.error().code() == expected, "another error");
    const std::string words =
        "this rank has 64 bytes, 0 in one shot, order host; rank 0 has 128 bytes";
    mine.Expect(!made && made.error().message().find(words) != std::string::npos,
                made ? "no error" : made.error().message());
  });
  CHECK(wrong == Found{});
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("Ranks that are threads have the order of the host", "[device_refusals]") {
  const auto wanted = GENERATE(OrderKind::kEvent, OrderKind::kMark);
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(3, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), {.options = {.arena_bytes = 64, .order = wanted}});
    Must(rank.Make(group));
    const Found expected = {fmt::format(
        "streams wait in the order 'host', not '{}': ranks 0 and 1 are threads of one process",
        NameOf(wanted))};
    mine.Expect(rank.notes() == expected, "another note");
    mine.Expect(rank.made()->Description() ==
                    "reductions on GPUs: 3 ranks; leaders: 0; order 'host'; arenas of 64 bytes",
                rank.made()->Description());
    const auto outcome = rank.AllReduce({}, {.count = 3}, ReduceOp::kSum);
    mine.Expect(outcome == CallOutcome::kDone, "the ranks do not reduce");
    rank.Leave();
  });
  CHECK(wrong == Found{});
}

TEST_CASE("A rank alone needs nothing of other processes", "[device_refusals]") {
  const auto wanted = GENERATE(OrderKind::kHost, OrderKind::kEvent, OrderKind::kMark);
  const EmulatedGpu gpu(1);
  device::DriverTable driver = gpu.table();
  driver.IpcGetMemHandle = nullptr;
  const auto opened = Good(device::Device::Open(0, driver));
  const Found wrong = RunRanksOnDevice(1, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, opened, {.options = {.arena_bytes = 64, .order = wanted}});
    Must(rank.Make(group));
    for (const std::string& note : rank.notes()) mine.Expect(false, note);
    const std::string values("\0\0\x80\x3F", 4);  // 1
    rank.WriteLater(0, values);
    const auto outcome = rank.AllReduce({}, {.count = 1}, {ReduceOp::kSum, 2});
    mine.Expect(outcome == CallOutcome::kDone, "declined");
    mine.Expect(rank.ReadNow(0, 4) == std::string("\0\0\0\x40", 4), "not 2");
    rank.Leave();
  });
  CHECK(wrong == Found{});
}

TEST_CASE("A driver that shares no memory is a note", "[device_refusals]") {
  const EmulatedGpu gpu(1);
  device::DriverTable driver = gpu.table();
  driver.IpcGetMemHandle = nullptr;
  const auto lacking = Good(device::Device::Open(0, driver));
  const Found wrong = RunRanksOnDevice(3, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, group.rank() == 2 ? lacking : gpu.Open(), {});
    Must(rank.Make(group));
    ExpectNote(rank, "rank 2: this driver does not share memory between processes", mine);
  });
  CHECK(wrong == Found{});
}

TEST_CASE("Orders have names", "[device_refusals]") {
  for (const OrderKind kind : {OrderKind::kHost, OrderKind::kEvent, OrderKind::kMark}) {
    CHECK(Good(ParseOrder(NameOf(kind))) == kind);
  }
  const auto unknown = ParseOrder("bell");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().code() == ErrorCode::kInvalidArgument);
  CHECK(unknown.error().message() ==
        "no order of streams is called 'bell'; there are host, event, mark");
}

// --- Failures ----------------------------------------------------------------------------------

TEST_CASE("A GPU without memory for the arena fails all ranks, and leaves nothing",
          "[device_refusals]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(3, [&](ranks::Group& group, Complaints& mine) {
    const bool is_full = group.rank() == 2;
    RankOnDevice rank(group, gpu.Open(is_full ? 1 : 0), {});
    std::vector<device::DeviceMemory> held;
    if (is_full) held.push_back(Good(rank.gpu().Allocate(test::kEmulatedMemoryBytes - 4096)));
    const Status made = rank.Make(group);
    if (made) throw std::runtime_error("there is memory");
    mine.Expect(
        made.error().code() == (is_full ? ErrorCode::kResourceExhausted : ErrorCode::kPeerFailed),
        "another code");
    mine.Expect(
        made.error().message() ==
            std::string(is_full ? "" : "rank 2: ") +
                "GPU 1: cuMemAlloc of 65536 bytes: CUDA_ERROR_OUT_OF_MEMORY (out of memory): "
                "4096 of 67108864 bytes are free",
        made.error().message());
  });
  CHECK(wrong == Found{});
  CHECK(gpu->Objects().total() == 0);
}

// A call of two ranks that fails on both.
struct FailedCall {
  std::string Message(int rank) const { return messages[static_cast<size_t>(rank)]; }
  ErrorCode Code(int rank) const { return codes[static_cast<size_t>(rank)]; }

  std::vector<std::string> messages = {"", ""};
  std::vector<ErrorCode> codes = {ErrorCode::kIo, ErrorCode::kIo};
};

FailedCall FailOneCall(const EmulatedGpu& gpu, const std::function<RankSetup(int rank)>& setup,
                       const std::function<void(RankOnDevice& rank, int number)>& before) {
  FailedCall failed;
  const size_t kept = KeptCount();
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), setup(group.rank()));
    Must(rank.Make(group));
    before(rank, group.rank());
    const auto outcome = rank.AllReduce({}, {.count = 100}, ReduceOp::kSum);
    mine.Expect(!outcome, "the call does not fail");
    if (outcome) return;
    failed.messages[static_cast<size_t>(group.rank())] = outcome.error().message();
    failed.codes[static_cast<size_t>(group.rank())] = outcome.error().code();
    const auto again = rank.meetings().Barrier({});
    mine.Expect(!again, "the meetings go on");
    rank.Drop();
  });
  CHECK(wrong == Found{});
  CHECK(KeptCount() == kept + 4);
  return failed;
}

TEST_CASE("A failure of one rank's driver ends the call of all", "[device_refusals]") {
  const EmulatedGpu gpu(1);
  const FailedCall failed = FailOneCall(
      gpu, [](int) { return RankSetup(); },
      [&](RankOnDevice&, int rank) {
        if (rank == 0) gpu->FailCall("cuLaunchKernel", 1, 719);
      });
  CHECK(failed.Code(0) == ErrorCode::kInternal);
  CHECK(failed.Message(0) ==
        "this process has lost its context: GPU 0: cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED "
        "(unspecified launch failure)");
  CHECK(failed.Code(1) == ErrorCode::kPeerFailed);
  CHECK(failed.Message(1) == "rank 0 has stopped: " + failed.Message(0));
}

TEST_CASE("An error of the check ends a wait for a stream that is never done",
          "[device_refusals]") {
  class EndingHealth final : public ranks::Health {
   public:
    Status Check() override { return Fail(ErrorCode::kPeerFailed, "rank 7 is gone"); }
    void GiveUp(const Error&) override {}
  };
  const EmulatedGpu gpu(1);
  EndingHealth health;
  std::unique_ptr<test::EndlessWork> endless;
  const FailedCall failed = FailOneCall(
      gpu, [&](int rank) { return RankSetup{.health = rank == 1 ? &health : nullptr}; },
      [&](RankOnDevice& rank, int number) {
        if (number == 0) return;
        endless = std::make_unique<test::EndlessWork>(rank.gpu());
        endless->BeginOn(rank.stream());
      });
  CHECK(failed.Code(1) == ErrorCode::kPeerFailed);
  CHECK(failed.Message(1) == "rank 7 is gone");
  CHECK(failed.Message(0) == "rank 1 has stopped: rank 7 is gone");
}

TEST_CASE("A rank that leaves a call in the middle is told", "[device_refusals]") {
  const EmulatedGpu gpu(1);
  const FailedCall failed = FailOneCall(
      gpu, [](int rank) { return RankSetup{.declined_barrier = rank == 0 ? 2 : 0}; },
      [](RankOnDevice& rank, int number) {
        // The other rank fails in its next call.
        if (number == 1) Good(rank.AllReduce({}, {.count = 100}, ReduceOp::kSum));
      });
  CHECK(failed.Code(0) == ErrorCode::kInternal);
  CHECK(failed.Message(0) == "another rank has left a call that it had begun");
  CHECK(failed.Code(1) == ErrorCode::kPeerFailed);
  CHECK(failed.Message(1) == "rank 0 has stopped: " + failed.Message(0));
}

TEST_CASE("A rank that leaves while another one makes a call keeps the memory",
          "[device_refusals]") {
  const EmulatedGpu gpu(1);
  const size_t kept = KeptCount();
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    RankOnDevice rank(group, gpu.Open(), {});
    Must(rank.Make(group));
    if (group.rank() == 1) {
      const auto outcome = rank.AllReduce({}, {.count = 1}, ReduceOp::kSum);
      mine.Expect(outcome == CallOutcome::kDeclined, "not declined");
      return;
    }
    const Status left = rank.made()->LeaveInPeace();
    mine.Expect(!left && left.error().code() == ErrorCode::kPeerFailed &&
                    left.error().message().find("does not leave") != std::string::npos,
                "it leaves");
  });
  CHECK(wrong == Found{});
  CHECK(KeptCount() == kept + 4);
}

}  // namespace
}  // namespace lmdbio::sync
