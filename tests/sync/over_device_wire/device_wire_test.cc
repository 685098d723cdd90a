// Ranks that are threads reduce values on their GPUs over sockets of this host. Oracles: the same
// algorithm over values of the host, to the bit, and for integers the arithmetic of
// number_oracle.h. The stand-in draws the order of the streams by a seed, so a wait that is missing
// gives wrong bytes.
#include "lmdbio/sync/over_device_wire/device_wire.h"

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/sync/over_wire/wire_collectives.h"
#include "tests/device/failing_calls.h"
#include "tests/support/catch.h"
#include "tests/sync/over_device_wire/rank_on_wire.h"

namespace lmdbio::sync {
namespace {

using test::Complaints;
using test::EmulatedGpu;
using test::kOps;
using test::kTypes;
using test::Must;
using test::Random;
using test::RankOnWire;
using test::RunRanksOnDevice;
using test::ValuesOfRanks;
using Found = std::vector<std::string>;

constexpr std::array kAlgorithms{WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                                 WireAlgorithm::kHalving, WireAlgorithm::kDirect};

// A rank with its GPU, and the oracle.
class ComparedRank {
 public:
  ComparedRank(ranks::Group& group, std::shared_ptr<device::Device> gpu, const WireTable& table,
               uint64_t pinned_bytes = DeviceWireOptions().pinned_bytes)
      : rank_(group, std::move(gpu), {.options = {.table = table, .pinned_bytes = pinned_bytes}}) {
    Must(rank_.Make(group));
    auto wire = test::Good(OpenLinkWire(group, rank_.health(), {}));
    host_ = test::Good(WireCollectives(std::move(wire), {.table = table}));
  }

  // Packs, reduces and enqueues a copy of the result.
  void Reduce(const ValuesOfRanks& all, const Reduction& reduction, size_t slot = 0) {
    const std::string& mine = all.of[static_cast<size_t>(host_->rank())];
    rank_.WriteLater(all.values.offset, mine, slot);
    Must(rank_.AllReduce(all.values, reduction));
    rank_.ReadLater(all.values.offset, mine.size(), slot);
  }

  // "" if the result that was copied is right.
  std::string Compare(const ValuesOfRanks& all, const Reduction& reduction, size_t slot = 0) {
    std::string expected = all.of[static_cast<size_t>(host_->rank())];
    auto* const bytes = reinterpret_cast<std::byte*>(expected.data());
    const DeviceValues& values = all.values;
    test::Good(host_->AllReduce({}, {bytes, values.count, values.type}, reduction));
    const std::string found = rank_.BytesRead(values.offset, expected.size(), slot);
    const size_t wrong = test::FirstDifference(
        values.type, reinterpret_cast<const std::byte*>(found.data()), bytes, values.count);
    if (wrong != values.count) {
      return fmt::format("{} {} x {} at {}, scaled by {}: element {} differs from the host",
                         NameOf(reduction.op), NameOf(values.type), values.count, values.offset,
                         reduction.scale, wrong);
    }
    const bool is_exact = !IsFloating(values.type);
    return is_exact ? all.Compare(found, reduction) : "";
  }

  std::string ReduceOnce(const DeviceValues& values, const Reduction& reduction, uint64_t seed) {
    const ValuesOfRanks all(host_->size(), values, seed);
    Reduce(all, reduction);
    Must(rank_.stream().Synchronize());
    return Compare(all, reduction);
  }

  RankOnWire& rank() { return rank_; }

 private:
  RankOnWire rank_;
  std::unique_ptr<TableCollectives> host_;
};

TEST_CASE("Every algorithm, type, reduction and scale gives the bits of the host's wire",
          "[device_wire]") {
  const auto algorithm = GENERATE(WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                                  WireAlgorithm::kHalving, WireAlgorithm::kDirect);
  const int rank_count = GENERATE(2, 3, 4, 5, 7, 9);
  CAPTURE(NameOf(algorithm), rank_count);
  const EmulatedGpu gpu(static_cast<uint64_t>(rank_count));
  const Found wrong = RunRanksOnDevice(rank_count, [&](ranks::Group& group, Complaints& mine) {
    ComparedRank rank(group, gpu.Open(group.rank() % 3), OneWireAlgorithm(algorithm, 96, 2));
    uint64_t seed = 0;
    for (const DataType type : kTypes) {
      for (const ReduceOp op : kOps) {
        const double scale = op == ReduceOp::kSum ? -0.7 : 1.0;
        for (const size_t count : {0, 1, 77}) {
          const std::string found =
              rank.ReduceOnce({.offset = 16, .count = count, .type = type}, {op, scale}, ++seed);
          mine.Expect(found.empty(), fmt::format("rank {}: {}", group.rank(), found));
        }
      }
    }
    rank.rank().Drain();
  });
  CHECK(wrong == Found{});
  CHECK(gpu->Objects().total() == 0);
}

// --- Chunks ------------------------------------------------------------------------------------

// A job of some calls, the same on every rank.
struct DrawnJob {
  explicit DrawnJob(uint64_t seed) : random(seed) {
    algorithm = kAlgorithms[random.Below(kAlgorithms.size())];
    rank_count = static_cast<int>(random.Between(2, 6));
    chunk_bytes = std::array{1, 8, 24, 100, 1024, 1 << 20}[random.Below(6)];
    depth = static_cast<uint32_t>(std::array{1, 2, 3, 50}[random.Below(4)]);
  }
  std::string Text() const {
    return fmt::format("{}, {} ranks, chunks of {} bytes, {} at once", NameOf(algorithm),
                       rank_count, chunk_bytes, depth);
  }

  Random random;
  WireAlgorithm algorithm;
  int rank_count;
  uint64_t chunk_bytes;
  uint32_t depth;
};

std::string RunDrawn(ranks::Group& group, const EmulatedGpu& gpu, DrawnJob job) {
  ComparedRank rank(group, gpu.Open(group.rank() % 2),
                    OneWireAlgorithm(job.algorithm, job.chunk_bytes, job.depth));
  Random& random = job.random;
  for (int batch = 0; batch < 4; ++batch) {
    std::vector<std::pair<ValuesOfRanks, Reduction>> calls;
    for (size_t i = 0; i < RankOnWire::kSlots; ++i) {
      const DataType type = kTypes[random.Below(kTypes.size())];
      const uint64_t bytes_max = job.chunk_bytes < 100 ? 1000 : 20'000;
      const DeviceValues values = {.offset = random.Below(64) * ElementBytes(type),
                                   .count = random.Below(bytes_max / ElementBytes(type)),
                                   .type = type};
      const Reduction reduction(kOps[random.Below(kOps.size())], random.Below(2) == 0 ? 1.0 : 0.25);
      calls.emplace_back(ValuesOfRanks(group.size(), values, random.Next()), reduction);
      rank.Reduce(calls.back().first, reduction, i);
    }
    Must(rank.rank().stream().Synchronize());
    for (size_t i = 0; i < calls.size(); ++i) {
      const std::string wrong = rank.Compare(calls[i].first, calls[i].second, i);
      if (!wrong.empty()) return fmt::format("batch {}, call {}: {}", batch, i, wrong);
    }
  }
  return "";
}

TEST_CASE("Chunks of any size and depth, and calls behind each other, give the same bits",
          "[device_wire]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(40); ++seed) {
    const DrawnJob job(seed);
    INFO("seed " << seed << ": " << job.Text());
    const EmulatedGpu gpu(seed);
    const Found wrong =
        RunRanksOnDevice(job.rank_count, [&](ranks::Group& group, Complaints& mine) {
          const std::string found = RunDrawn(group, gpu, job);
          mine.Expect(found.empty(), fmt::format("rank {}: {}", group.rank(), found));
        });
    CHECK(wrong == Found{});
  }
}

// A kernel or a copy of the first rank is held back, until its host has looked at it some times
// after `sent` messages of the other rank had left.
class HeldStream final : public ranks::Health {
 public:
  HeldStream(device::Device& gpu, const std::atomic<int>& sent, int sent_min)
      : pinned_(test::Good(gpu.Pin(memory_.bytes()))), sent_(sent), sent_min_(sent_min) {}

  // Work that is enqueued on the stream from now on is held back.
  void Hold(device::DeviceStream& stream) {
    const device::MarkWait wait{mark_, 1};
    Must(stream.AwaitAll({&wait, 1}));
  }

  // Called in waits of the host, each of which has many looks.
  Status Check() override {
    if (sent_.load() >= sent_min_ && ++checks_ == 3) mark_.Raise(1);
    return {};
  }
  void GiveUp(const Error&) override {}

 private:
  const test::SharedBytes memory_{4096};
  const device::PinnedBytes pinned_;
  const device::DeviceMark mark_ = test::Good(device::DeviceMark::In(pinned_, 0));
  const std::atomic<int>& sent_;
  const int sent_min_;
  int checks_ = 0;
};

// Messages 4 and 5 of the first call are copied late, and lie where the second call, which has
// fewer and larger slots, has its messages 2 and later.
TEST_CASE("A slot is not filled while a call before it, with other slots, uses it",
          "[device_wire]") {
  using Step = test::WatchedWire::WireStep;
  constexpr DeviceValues kFirst = {.offset = 0, .count = 60, .type = DataType::kInt32};
  constexpr DeviceValues kSecond = {.offset = 4096, .count = 300, .type = DataType::kInt32};
  const WireTable table = {
      {.bytes_max = 240, .algorithm = WireAlgorithm::kRing, .chunk_bytes = 40, .chunk_depth = 8},
      {.algorithm = WireAlgorithm::kRing, .chunk_bytes = 200, .chunk_depth = 4}};
  const EmulatedGpu gpu(1);
  std::atomic<int> sent = 0;
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    const bool is_held = group.rank() == 0;
    const auto opened = gpu.Open(group.rank());
    HeldStream held(*opened, sent, 6 + 3);  // the second call has sent three chunks
    RankOnWire* waiting = nullptr;
    int received = 0;
    const auto watch = [&](Step step, test::WatchedWire::StepSide side) {
      if (side == test::WatchedWire::StepSide::kBefore) return;
      if (!is_held && step == Step::kStartSend) ++sent;
      if (is_held && step == Step::kAwaitReceive && ++received == 5) held.Hold(waiting->stream());
    };
    RankOnWire rank(group, opened, {.options = {.table = table}, .watch = watch, .health = &held});
    waiting = &rank;
    Must(rank.Make(group));
    std::vector<ValuesOfRanks> calls;
    for (const DeviceValues& values : {kFirst, kSecond}) {
      calls.emplace_back(2, values, 1 + values.offset);
      const std::string& bytes = calls.back().of[static_cast<size_t>(group.rank())];
      rank.WriteLater(values.offset, bytes);
      Must(rank.AllReduce(values, ReduceOp::kSum));
      rank.ReadLater(values.offset, bytes.size());
    }
    rank.Drain();
    for (const ValuesOfRanks& all : calls) {
      const std::string found = rank.BytesRead(all.values.offset, all.of.front().size());
      const std::string differs = all.Compare(found, ReduceOp::kSum);
      mine.Expect(differs.empty(), fmt::format("rank {}: {}", group.rank(), differs));
    }
    mine.Expect(!is_held || received == 12, "other messages");
  });
  CHECK(wrong == Found{});
}

TEST_CASE("Chunks that are too large for the pinned memory are made smaller", "[device_wire]") {
  const auto algorithm =
      GENERATE(WireAlgorithm::kRing, WireAlgorithm::kHalving, WireAlgorithm::kDirect);
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    ComparedRank rank(group, gpu.Open(), OneWireAlgorithm(algorithm, 1 << 20, 1000),
                      kDoublingBytesMax);
    const std::string found = rank.ReduceOnce({.offset = 4, .count = 32'000}, ReduceOp::kSum, 1);
    mine.Expect(found.empty(), found);
    rank.rank().Drain();
  });
  CHECK(wrong == Found{});
}

// --- The making --------------------------------------------------------------------------------

TEST_CASE("The table of rank 0 applies to all ranks", "[device_wire]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(3, [&](ranks::Group& group, Complaints& mine) {
    const auto algorithm = group.rank() == 0 ? WireAlgorithm::kRing : WireAlgorithm::kDirect;
    RankOnWire rank(group, gpu.Open(),
                    {.options = {.table = OneWireAlgorithm(algorithm, 1000, 3)}});
    Must(rank.Make(group));
    mine.Expect(rank.made().Description() ==
                    "between hosts, reduced by GPUs:\nall others: ring, chunks of 1000 bytes, 3 at "
                    "once",
                rank.made().Description());
    Must(rank.AllReduce({.count = 1000}, ReduceOp::kSum));
    rank.Drain();
  });
  CHECK(wrong == Found{});
}

TEST_CASE("A table that is wrong is an error on every rank", "[device_wire]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    const WireTable table =
        group.rank() == 0 ? WireTable{} : OneWireAlgorithm(WireAlgorithm::kRing, 8, 1);
    RankOnWire rank(group, gpu.Open(), {.options = {.table = table}});
    const Status made = rank.Make(group);
    mine.Expect(!made && made.error().code() == ErrorCode::kInvalidArgument, "no error");
  });
  CHECK(wrong == Found{});
}

TEST_CASE("The direct algorithm is refused for more ranks than a kernel has sources",
          "[device_wire]") {
  const auto algorithm = GENERATE(WireAlgorithm::kDirect, WireAlgorithm::kRing);
  const int rank_count = GENERATE(64, 65);
  const EmulatedGpu gpu(1);
  const bool is_refused = algorithm == WireAlgorithm::kDirect && rank_count == 65;
  const Found wrong = RunRanksOnDevice(rank_count, [&](ranks::Group& group, Complaints& mine) {
    ranks::SoloHealth healthy;
    auto wire = test::Good(OpenLinkWire(group, healthy, {}));
    const auto device = gpu.Open();
    const auto kernels =
        test::Good(kernels::DeviceKernels::Load(*device, test::EmulatedKernelImage()));
    const auto made = DeviceWire::Make(
        group, std::move(wire), {*device, *kernels, {}},
        {.table = OneWireAlgorithm(algorithm, 8, 1), .pinned_bytes = kDoublingBytesMax});
    if (!is_refused) {
      mine.Expect(made.has_value(), "refused");
      return;
    }
    mine.Expect(!made && made.error().code() == ErrorCode::kUnsupported &&
                    made.error().message() ==
                        "algorithm 'direct' on GPUs: there are 65 ranks, and "
                        "a kernel takes the values of 64",
                made ? "not refused" : made.error().message());
  });
  CHECK(wrong == Found{});
}

TEST_CASE("Pages that one rank cannot pin are an error on every rank", "[device_wire]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    RankOnWire rank(group, gpu.Open(), {});
    Must(group.Barrier());
    // The first of the two ranks that pins its pages meets the fault.
    if (group.rank() == 0) gpu->FailCall("cuMemHostRegister", 1, 2);
    Must(group.Barrier());
    const Status made = rank.Make(group);
    mine.Expect(!made && (made.error().code() == ErrorCode::kResourceExhausted ||
                          made.error().code() == ErrorCode::kPeerFailed),
                "no error");
  });
  CHECK(wrong == Found{});
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("Memory to which a wire may still write is kept", "[device_wire]") {
  const bool is_kept = GENERATE(true, false);
  const EmulatedGpu gpu(1);
  const size_t kept = KeptCount();
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints&) {
    RankOnWire rank(group, gpu.Open(), {});
    Must(rank.Make(group));
    if (is_kept) rank.wire().set_writes_after_failure();
    rank.Drop();
  });
  CHECK(wrong == Found{});
  CHECK(KeptCount() == kept + (is_kept ? 4 : 0));
  CHECK(gpu->Objects().pinned == (is_kept ? 2 : 0));
}

TEST_CASE("Ranks that make different calls in one agreement fail", "[device_wire]") {
  const EmulatedGpu gpu(1);
  const Found wrong = RunRanksOnDevice(2, [&](ranks::Group& group, Complaints& mine) {
    RankOnWire rank(group, gpu.Open(),
                    {.options = {.table = OneWireAlgorithm(WireAlgorithm::kDoubling, 8, 1)}});
    Must(rank.Make(group));
    const Status done =
        rank.AllReduce({.count = 5}, group.rank() == 0 ? ReduceOp::kSum : ReduceOp::kMax);
    // The first rank that finds it stops the other one.
    const std::string words = "the ranks make different calls between hosts";
    const std::string of_other = fmt::format("rank {}: {}", 1 - group.rank(), words);
    mine.Expect(!done && (done.error().message() == words || done.error().message() == of_other),
                done ? "no error" : done.error().message());
    const Status next = rank.AllReduce({.count = 5}, ReduceOp::kSum);
    mine.Expect(!next && next.error().code() == ErrorCode::kPeerFailed, "the wire is not stopped");
    rank.Drain();
  });
  CHECK(wrong == Found{});
}

// --- Steady state ------------------------------------------------------------------------------

// The calls of the driver in a reduction, beside looks: those of a rank, of all in the mean.
std::string CallsOf(const WireTable& table, int rank_count, uint64_t count) {
  const EmulatedGpu gpu(1);
  std::string text;
  const Found wrong = RunRanksOnDevice(rank_count, [&](ranks::Group& group, Complaints&) {
    RankOnWire rank(group, gpu.Open(), {.options = {.table = table}});
    Must(rank.Make(group));
    const auto reduce = [&](uint64_t calls) {
      for (uint64_t i = 0; i < calls; ++i) {
        Must(rank.AllReduce({.count = 600}, ReduceOp::kSum));
        rank.Drain();
      }
      Must(group.Barrier());
    };
    reduce(1);
    const test::CallCounts before = test::CountCalls();
    Must(group.Barrier());
    reduce(count);
    const test::CallCounts after = test::CountCalls();
    Must(group.Barrier());
    if (group.rank() != 0) return;
    for (const auto& [name, all] : after) {
      const bool is_look = name == "cuStreamQuery" || name == "cuEventQuery";
      const uint64_t calls = all - before.at(name);
      if (calls == 0 || is_look || name.starts_with("cuCtx")) continue;
      // Of each rank in a call.
      const double each = static_cast<double>(calls) / static_cast<double>(count) / rank_count;
      text += fmt::format("{} {}\n", each, name);
    }
  });
  CHECK(wrong == Found{});
  return text;
}

TEST_CASE("A reduction makes no call that waits for the device", "[device_wire]") {
  constexpr uint64_t kCalls = 20;
  CHECK(CallsOf(OneWireAlgorithm(WireAlgorithm::kRing, 800, 8), 3, kCalls) ==
        "9 cuEventRecord\n2 cuLaunchKernel\n2 cuMemcpyDtoHAsync\n2 cuMemcpyHtoDAsync\n"
        "2 cuStreamWaitEvent\n");
  CHECK(CallsOf(OneWireAlgorithm(WireAlgorithm::kHalving, 2400, 4), 4, kCalls) ==
        "9 cuEventRecord\n2 cuLaunchKernel\n4 cuMemcpyDtoHAsync\n2 cuMemcpyHtoDAsync\n"
        "4 cuStreamWaitEvent\n");
  CHECK(CallsOf(OneWireAlgorithm(WireAlgorithm::kDirect, 800, 4), 3, kCalls) ==
        "9 cuEventRecord\n1 cuLaunchKernel\n4 cuMemcpyDtoHAsync\n2 cuMemcpyHtoDAsync\n"
        "2 cuStreamWaitEvent\n");
  CHECK(CallsOf(OneWireAlgorithm(WireAlgorithm::kDoubling, 8, 1), 2, kCalls) ==
        "1 cuEventRecord\n1 cuMemcpyDtoHAsync\n1 cuMemcpyHtoDAsync\n");
}

}  // namespace
}  // namespace lmdbio::sync
