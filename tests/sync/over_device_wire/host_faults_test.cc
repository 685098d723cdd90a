// Goal: wherever the driver fails on a rank of several hosts, the rank gets the name of the call,
// and the ranks of all hosts get that of the rank. No rank hangs, and nothing is left where nothing
// was made. Method: ranks are processes, neighbours of which count as a host.
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/sync/over_device/rank_agreement.h"
#include "tests/device/failing_calls.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device/ranks_on_file.h"
#include "tests/sync/over_device_wire/rank_on_hosts.h"

namespace lmdbio::sync {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::Must;
using test::RankOnHosts;
using test::RanksOnFile;

constexpr int kFaultRanks = 4;
constexpr int kFaultRanksPerHost = 2;  // each with a GPU of its own, so both are leaders
constexpr DeviceValues kFaultValues = {.offset = 64, .count = 300};

// The end of a small job on one rank.
enum class HostsStage {
  kAllRight,
  kNotMade,
  kOtherWay,    // through the host, with a note
  kOtherOrder,  // of streams of this host, with a note
  kFailed,
};

struct HostsEnd {
  HostsStage stage = HostsStage::kAllRight;
  bool is_met = false;  // the fault
};

// A call of the driver that fails on one rank.
struct HostsFault {
  OrderKind order;
  int victim;
  std::string name;
  uint64_t nth;
};

class FaultyHostsJob {
 public:
  FaultyHostsJob(ranks::Group& group, const HostsFault& fault)
      : group_(group), fault_(fault), is_victim_(group.rank() == fault.victim) {}

  // Collective. Returns: whether the fault was met
  bool Run() {
    const EmulatedGpu gpu(fault_.nth);
    const size_t kept = KeptCount();
    auto opened = gpu.Open(group_.rank() % kFaultRanksPerHost);
    {
      RankOnHosts rank(group_, opened, {.order = fault_.order});
      // Ranks that meet for the first time after a failure find a closed door, without its words.
      Good(rank.meetings().Barrier({}));
      Must(group_.Barrier());
      if (is_victim_) gpu->FailCall(fault_.name.c_str(), fault_.nth, test::kUnknownCode);
      Use(rank);
      // The end of an object would tell the others of the failure, too.
      Must(group_.Barrier());
      rank.Drop();
      end_.is_met = !is_victim_ || gpu->FaultsLeft() == 0;
      // The objects of the test itself must not meet it.
      if (!end_.is_met) return IsMet();
    }
    const Status released = opened->release_failure();
    opened.reset();
    if (!IsMet()) return false;
    const std::string text = !error_.empty() || released ? error_ : released.error().message();
    const bool names_call = text.find(fault_.name) != std::string::npos;
    if (is_victim_ && !names_call) Complain("does not name the call: " + text);
    if (end_.stage == HostsStage::kFailed) {
      if (KeptCount() < kept + 2) Complain("the memory is not kept");
      return true;
    }
    const bool is_released = is_victim_ && end_.stage == HostsStage::kAllRight;
    if (gpu->Objects().total() != (is_released ? 1 : 0)) Complain("objects are left");
    return true;
  }

  const std::string& complaints() const { return complaints_; }

 private:
  void Complain(const std::string& what) {
    complaints_ += fmt::format("{}, victim {}, {} {}: {}; ", NameOf(fault_.order), fault_.victim,
                               fault_.name, fault_.nth, what);
  }

  // Collective. Whether the victim has met the fault.
  bool IsMet() {
    const std::vector<HostsEnd> ends = Good(GatherFacts(group_, end_));
    const HostsEnd& victims = ends[static_cast<size_t>(fault_.victim)];
    const bool is_neighbour =
        group_.rank() / kFaultRanksPerHost == fault_.victim / kFaultRanksPerHost;
    const bool is_of_host = victims.stage == HostsStage::kOtherOrder && !is_neighbour;
    const HostsStage expected = is_of_host ? HostsStage::kAllRight : victims.stage;
    if (victims.is_met && end_.stage != expected) Complain("the ranks end in different ways");
    return victims.is_met;
  }

  void Use(RankOnHosts& rank) {
    const Status made = rank.Make(group_);
    if (!made) return Fails(HostsStage::kNotMade, made.error());
    if (!rank.notes().empty()) {
      const bool is_made = rank.made() != nullptr;
      end_.stage = is_made ? HostsStage::kOtherOrder : HostsStage::kOtherWay;
      error_ = rank.notes().front();
    }
    if (rank.made() == nullptr) return;
    for (int i = 0; i < 2; ++i) {
      const auto outcome =
          rank.made()->AllReduce({}, kFaultValues, {ReduceOp::kSum, 0.5}, rank.stream());
      if (outcome) continue;
      Fails(HostsStage::kFailed, outcome.error());
      if (!rank.Drain(std::chrono::seconds(30))) Complain("the stream is not done");
      return;
    }
    if (!rank.Drain(std::chrono::seconds(30))) Complain("the stream is not done");
    const Status left = rank.made()->LeaveInPeace();
    if (!left) Fails(HostsStage::kFailed, left.error());
  }

  void Fails(HostsStage stage, const Error& error) {
    end_.stage = stage;
    error_ = error.message();
    const std::string wrong = test::WrongEnd(error, group_.rank(), fault_.victim);
    if (!wrong.empty()) Complain(wrong);
  }

  ranks::Group& group_;
  const HostsFault fault_;
  const bool is_victim_;
  HostsEnd end_;
  std::string error_;
  std::string complaints_;
};

// Rank 2 is the root of the second host, and rank 3 its other rank.
TEST_CASE("Each call of the driver fails once at each place of a job over hosts", "[host_faults]") {
  const auto order = GENERATE(OrderKind::kHost, OrderKind::kEvent, OrderKind::kMark);
  const int victim = GENERATE(2, 3);
  CAPTURE(NameOf(order), victim);
  RanksOnFile ranks(
      kFaultRanks,
      [&](ranks::Group& group) {
        const auto run = [&](const std::string& name, uint64_t nth, std::string& complaints) {
          FaultyHostsJob job(group, {order, victim, name, nth});
          const bool is_met = job.Run();
          complaints += job.complaints();
          return is_met;
        };
        return test::FailAtEachPlace(12, 10, run);
      },
      kFaultRanksPerHost);
  CHECK(ranks.Reports() == "");
}

}  // namespace
}  // namespace lmdbio::sync
