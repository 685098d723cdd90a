// Goal: a system that refuses objects between processes, and a driver that fails, are told to all
// ranks. No rank hangs, and nothing is left where nothing was made. Method: ranks are processes
// that share the devices of one file.
#include <array>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/sync/over_device/rank_agreement.h"
#include "tests/device/failing_calls.h"
#include "tests/ranks/hooked_group.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/rank_on_device.h"
#include "tests/sync/over_device/ranks_on_file.h"

namespace lmdbio::sync {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::Must;
using test::RankOnDevice;
using test::RanksOnFile;
using test::ValuesOfRanks;
using Notes = std::vector<std::string>;

constexpr int kVictim = 1;

DeviceCollectiveOptions Small(OrderKind order) { return {.arena_bytes = 4096, .order = order}; }

std::string NoteText(const RankOnDevice& rank) {
  return rank.notes().size() == 1 ? rank.notes().front()
                                  : fmt::format("{} notes", rank.notes().size());
}

// Reduces once. "" if the result is right.
std::string ReduceRight(RankOnDevice& rank, const ranks::Group& group) {
  const ValuesOfRanks all(group.size(), {.offset = 8, .count = 99}, 1);
  const std::string& mine = all.of[static_cast<size_t>(group.rank())];
  rank.WriteLater(8, mine);
  Good(rank.AllReduce({}, all.values, ReduceOp::kSum));
  return all.Compare(rank.ReadNow(8, mine.size()), ReduceOp::kSum);
}

// A job of three ranks, of which the victim's stand-in refuses something.
struct Refusal {
  OrderKind wanted = OrderKind::kHost;
  // Of the victim, before the driver is looked at.
  std::function<void(device::DriverTable& driver)> lacks = [](device::DriverTable&) {};
  // Of the victim, before the collectives are made.
  std::function<void(const EmulatedGpu& gpu)> refuses = [](const EmulatedGpu&) {};
  bool has_object = true;
  std::string note = "";
};

void CheckRefusal(const Refusal& refusal) {
  RanksOnFile ranks(3, [&](ranks::Group& group) -> std::string {
    const EmulatedGpu gpu(1);
    device::DriverTable driver = gpu.table();
    const bool is_victim = group.rank() == kVictim;
    if (is_victim) refusal.lacks(driver);
    {
      RankOnDevice rank(group, Good(device::Device::Open(0, driver)),
                        {.options = Small(refusal.wanted)});
      if (is_victim) refusal.refuses(gpu);
      Must(rank.Make(group));
      if (NoteText(rank) != refusal.note) return NoteText(rank);
      if ((rank.made() != nullptr) != refusal.has_object) return "another way";
      if (refusal.has_object) {
        const std::string wrong = ReduceRight(rank, group);
        if (!wrong.empty()) return wrong;
      }
      rank.Leave();
    }
    return gpu->Objects().total() == 0 ? "" : "objects are left";
  });
  CHECK(ranks.Reports() == "");
}

TEST_CASE("Memory of another process that cannot be mapped is a note on all ranks",
          "[order_faults]") {
  CheckRefusal({.refuses = [](const EmulatedGpu& gpu) { gpu->RefuseImports(801); },
                .has_object = false,
                .note = "the ranks do not reduce on their GPUs: rank 1: the memory of rank 0: GPU "
                        "0: cuIpcOpenMemHandle: CUDA_ERROR_NOT_SUPPORTED (operation not "
                        "supported): device memory of other processes cannot be mapped here "
                        "(containers with pid namespaces of their own, and MIG, forbid it)"});
}

TEST_CASE("A GPU that has no memory to share is a note on all ranks", "[order_faults]") {
  CheckRefusal({.refuses = [](const EmulatedGpu& gpu) { gpu->FailCall("cuMemAlloc", 1, 801); },
                .has_object = false,
                .note = "the ranks do not reduce on their GPUs: rank 1: GPU 0: cuMemAlloc of 4096 "
                        "bytes: CUDA_ERROR_NOT_SUPPORTED (operation not supported)"});
}

TEST_CASE("Events of another process that cannot be opened lead to the order of the host",
          "[order_faults]") {
  CheckRefusal(
      {.wanted = OrderKind::kEvent,
       .refuses = [](const EmulatedGpu& gpu) { gpu->FailCall("cuIpcOpenEventHandle", 2, 801); },
       .note = "streams wait in the order 'host', not 'event': rank 1: the events of rank 0: GPU "
               "0: cuIpcOpenEventHandle: CUDA_ERROR_NOT_SUPPORTED (operation not supported): "
               "events of other processes cannot be opened here"});
}

TEST_CASE("A driver without events between processes leads to the order of the host",
          "[order_faults]") {
  CheckRefusal({.wanted = OrderKind::kEvent,
                .lacks = [](device::DriverTable& driver) { driver.IpcGetEventHandle = nullptr; },
                .note = "streams wait in the order 'host', not 'event': rank 1: GPU 0 "
                        "(Emulated GPU 0) or its driver has no events between processes"});
}

TEST_CASE("A driver without marks leads to the order of the host", "[order_faults]") {
  CheckRefusal({.wanted = OrderKind::kMark,
                .lacks = [](device::DriverTable& driver) { driver.StreamBatchMemOp = nullptr; },
                .note = "streams wait in the order 'host', not 'mark': rank 1: GPU 0 "
                        "(Emulated GPU 0) or its driver has no 64-bit operations of streams"});
}

TEST_CASE("Memory for marks that cannot be pinned leads to the order of the host",
          "[order_faults]") {
  CheckRefusal(
      {.wanted = OrderKind::kMark,
       .refuses = [](const EmulatedGpu& gpu) { gpu->FailCall("cuMemHostRegister", 1, 801); },
       .note = "streams wait in the order 'host', not 'mark': rank 1: GPU 0: cuMemHostRegister of "
               "4096 bytes: CUDA_ERROR_NOT_SUPPORTED (operation not supported)"});
}

TEST_CASE("Without shared memory for offsets or marks nothing is made", "[order_faults]") {
  const bool is_of_marks = GENERATE(false, true);
  RanksOnFile ranks(2, [&](ranks::Group& group) -> std::string {
    const EmulatedGpu gpu(1);
    {
      RankOnDevice rank(group, gpu.Open(), {.options = Small(OrderKind::kMark)});
      ranks::HookedGroup hooked(
          group,
          [&](ranks::Group& host,
              uint64_t size_bytes) -> Result<std::unique_ptr<ranks::SharedMemory>> {
            if (is_of_marks && size_bytes < 4096) return host.AllocateShared(size_bytes);
            return Fail(ErrorCode::kResourceExhausted, fmt::format("no {} bytes", size_bytes));
          });
      const Status made = rank.Make(hooked);
      if (made || made.error().code() != ErrorCode::kResourceExhausted) return "another error";
      const std::string expected = is_of_marks ? "no 4096 bytes" : "no 128 bytes";
      if (made.error().message() != expected) return made.error().message();
    }
    return gpu->Objects().total() == 0 ? "" : "objects are left";
  });
  CHECK(ranks.Reports() == "");
}

TEST_CASE("Objects that others may still use are kept if the ranks cannot meet", "[order_faults]") {
  const bool is_memory = GENERATE(true, false);
  RanksOnFile ranks(2, [&](ranks::Group& group) -> std::string {
    const EmulatedGpu gpu(1);
    RankOnDevice rank(group, gpu.Open(), {.options = Small(OrderKind::kEvent)});
    ranks::HookedGroup hooked(
        group, [](ranks::Group& host, uint64_t bytes) { return host.AllocateShared(bytes); });
    hooked.set_barrier([] { return Fail(ErrorCode::kInternal, "no barrier"); });
    const char* const refused = is_memory ? "cuIpcOpenMemHandle" : "cuIpcOpenEventHandle";
    if (group.rank() == kVictim) gpu->FailCall(refused, 1, 801);
    const uint64_t before = gpu->Objects().total();
    Must(rank.Make(hooked));
    if ((rank.made() == nullptr) != is_memory) return "another way";
    if (KeptCount() != 1) return "nothing is kept";
    if (!is_memory) return "";
    const test::EmulatedObjects objects = gpu->Objects();
    return objects.total() == before + 1 && objects.imports == 0 ? "" : "other objects";
  });
  CHECK(ranks.Reports() == "");
}

// --- A failure at each place -------------------------------------------------------------------

// The end of a small job on one rank.
enum class JobStage { kAllRight, kNotMade, kOtherWay, kFailed };

struct JobEnd {
  JobStage stage = JobStage::kAllRight;
  bool is_met = false;  // the fault
};

// A call of the driver that fails on one rank.
struct CallFault {
  OrderKind order;
  int victim;
  std::string name;
  uint64_t nth;
};

class FaultyJob {
 public:
  FaultyJob(ranks::Group& group, const CallFault& fault)
      : group_(group), fault_(fault), is_victim_(group.rank() == fault.victim) {}

  // Collective. Returns: whether the fault was met
  bool Run() {
    const EmulatedGpu gpu(fault_.nth);
    const size_t kept = KeptCount();
    auto opened = gpu.Open();
    {
      RankOnDevice rank(group_, opened, {.options = Small(fault_.order)});
      Must(group_.Barrier());
      if (is_victim_) gpu->FailCall(fault_.name.c_str(), fault_.nth, test::kUnknownCode);
      Use(rank);
      rank.Drop();
      end_.is_met = !is_victim_ || gpu->FaultsLeft() == 0;
    }
    const Status released = opened->release_failure();
    opened.reset();
    const std::vector<JobEnd> ends = Good(GatherFacts(group_, end_));
    const JobEnd& victims = ends[static_cast<size_t>(fault_.victim)];
    if (!victims.is_met) return false;
    if (end_.stage != victims.stage) Complain("the ranks end in different ways");
    const std::string text = !error_.empty() || released ? error_ : released.error().message();
    const bool names_call = text.find(fault_.name) != std::string::npos;
    if (is_victim_ && !names_call) Complain("does not name the call: " + text);
    if (end_.stage == JobStage::kFailed) {
      if (KeptCount() != kept + 2) Complain("the memory is not kept");
    } else {
      const test::EmulatedObjects objects = gpu->Objects();
      const bool is_released = is_victim_ && end_.stage == JobStage::kAllRight;
      if (objects.total() != (is_released ? 1 : 0)) Complain("objects are left");
    }
    return true;
  }

  const std::string& complaints() const { return complaints_; }

 private:
  void Complain(const std::string& what) {
    complaints_ += fmt::format("{}, victim {}, {} {}: {}; ", NameOf(fault_.order), fault_.victim,
                               fault_.name, fault_.nth, what);
  }

  void Use(RankOnDevice& rank) {
    const Status made = rank.Make(group_);
    if (!made) return Fails(JobStage::kNotMade, made.error());
    if (!rank.notes().empty()) {
      end_.stage = JobStage::kOtherWay;
      error_ = rank.notes().front();
    }
    if (rank.made() == nullptr) return;
    for (int i = 0; i < 2; ++i) {
      const auto outcome = rank.AllReduce({}, {.count = 100}, ReduceOp::kSum);
      if (!outcome) Fails(JobStage::kFailed, outcome.error());
      if (!outcome) return rank.Drain();
    }
    rank.Drain();
    const Status left = rank.made()->LeaveInPeace();
    if (!left) Fails(JobStage::kFailed, left.error());
  }

  void Fails(JobStage stage, const Error& error) {
    end_.stage = stage;
    error_ = error.message();
    const std::string wrong = test::WrongEnd(error, group_.rank(), fault_.victim);
    if (!wrong.empty()) Complain(wrong);
  }

  ranks::Group& group_;
  const CallFault fault_;
  const bool is_victim_;
  JobEnd end_;
  std::string error_;
  std::string complaints_;
};

TEST_CASE("Each call of the driver fails once at each place", "[order_faults]") {
  const auto order = GENERATE(OrderKind::kHost, OrderKind::kEvent, OrderKind::kMark);
  const int victim = GENERATE(0, 1);
  CAPTURE(NameOf(order), victim);
  RanksOnFile ranks(2, [&](ranks::Group& group) {
    const auto run = [&](const std::string& name, uint64_t nth, std::string& complaints) {
      FaultyJob job(group, {order, victim, name, nth});
      const bool is_met = job.Run();
      complaints += job.complaints();
      return is_met;
    };
    return test::FailAtEachPlace(std::numeric_limits<uint64_t>::max(), 10, run);
  });
  CHECK(ranks.Reports() == "");
}

}  // namespace
}  // namespace lmdbio::sync
