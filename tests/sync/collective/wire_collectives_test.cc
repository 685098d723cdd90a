// Goal: every algorithm over a wire does what any collectives do, for any ranks, and gives
// the same bits on all ranks and in every run; a rank that dies is named on all others.
// Method: ranks played by threads, over real sockets of this host.
#include "lmdbio/sync/over_wire/wire_collectives.h"

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/sync/over_wire/link_wire.h"
#include "tests/support/catch.h"
#include "tests/sync/collective/collective_checks.h"

namespace lmdbio::sync {
namespace {

using Clock = std::chrono::steady_clock;
using Complaint = std::string;

ranks::SoloHealth& Healthy() {
  static ranks::SoloHealth health;
  return health;
}

std::unique_ptr<Collectives> OverLinks(ranks::Group& group, const WireCollectiveOptions& options,
                                       WaitMode wait_mode = WaitMode::kSleep) {
  auto wire = OpenLinkWire(group, Healthy(), {.wait_mode = wait_mode});
  if (!wire) return nullptr;
  auto made = WireCollectives(std::move(*wire), options);
  return made ? std::move(*made) : nullptr;
}

// Chunks so small that there are many of them.
WireCollectiveOptions OnlyBy(WireAlgorithm algorithm) {
  return {.table = OneWireAlgorithm(algorithm, 5'000, 3)};
}

TEST_CASE("Every algorithm does what any collectives do", "[collective][wire]") {
  const auto algorithm = GENERATE(WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                                  WireAlgorithm::kHalving, WireAlgorithm::kDirect);
  const int rank_count = GENERATE(1, 2, 3, 4, 5, 8);
  INFO(NameOf(algorithm) << ", " << rank_count << " ranks");
  const test::CollectiveSizes sizes{.large = {65'528, 200'008}};
  const auto complaints = test::RunCollectiveChecks(
      rank_count, [&](ranks::Group& group) { return OverLinks(group, OnlyBy(algorithm)); }, sizes);
  CHECK(complaints == std::vector<Complaint>{});
}

TEST_CASE("A measured table is the same on every rank, and works", "[collective][wire]") {
  const int rank_count = GENERATE(2, 3);
  const auto complaints = test::RunCollectiveChecks(rank_count, [&](ranks::Group& group) {
    auto made = OverLinks(
        group, {.table = {}, .chunk_depth = 2, .trial_time = std::chrono::milliseconds(20)},
        WaitMode::kSpin);
    if (made == nullptr) return made;
    std::string text = made->Description();
    text.resize(4096);
    const auto all = group.AllGather(std::as_bytes(std::span(text)));
    for (size_t at = 0; at < all->size(); at += text.size()) {
      if (std::memcmp(&(*all)[at], text.data(), text.size()) != 0) made = nullptr;
    }
    return made;
  });
  CHECK(complaints == std::vector<Complaint>{});
}

TEST_CASE("A table of rank 0 that is none is refused on every rank", "[collective][wire]") {
  std::vector<Complaint> wrong(3);
  ranks::RunAsThreads({.rank_count = 3}, [&](ranks::Group& group) {
    auto wire = OpenLinkWire(group, Healthy(), {});
    WireCollectiveOptions options = OnlyBy(WireAlgorithm::kRing);
    if (group.rank() == 0) options.table.back().bytes_max = 5;
    const auto made = WireCollectives(std::move(*wire), options);
    if (made || made.error().code() != ErrorCode::kInvalidArgument) {
      wrong[static_cast<size_t>(group.rank())] = "is taken";
    }
  });
  CHECK(wrong == std::vector<Complaint>(3));
}

// The bits that rank `rank` gets for values whose sum depends on the order.
std::vector<float> SumOf(ranks::Group& group, const WireCollectiveOptions& options) {
  std::vector<float> values(20'011);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 1.0F / static_cast<float>(i + 1) * static_cast<float>(group.rank() * 37 % 11 + 1);
  }
  const auto made = OverLinks(group, options);
  const auto outcome = made->AllReduce(
      {.digest = 1},
      {reinterpret_cast<std::byte*>(values.data()), values.size(), sync::DataType::kFloat32},
      sync::ReduceOp::kSum);
  return outcome == CallOutcome::kDone ? values : std::vector<float>();
}

TEST_CASE("All ranks get the same bits, in every run", "[collective][wire]") {
  const auto algorithm = GENERATE(WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                                  WireAlgorithm::kHalving, WireAlgorithm::kDirect);
  const int rank_count = GENERATE(3, 5, 8);
  std::vector<std::vector<float>> sums;
  for (int run = 0; run < 3; ++run) {
    std::vector<std::vector<float>> of_run(static_cast<size_t>(rank_count));
    ranks::RunAsThreads({rank_count}, [&](ranks::Group& group) {
      of_run[static_cast<size_t>(group.rank())] = SumOf(group, OnlyBy(algorithm));
    });
    sums.insert(sums.end(), of_run.begin(), of_run.end());
  }
  REQUIRE_FALSE(sums[0].empty());
  for (const auto& sum : sums) {
    CHECK(std::memcmp(sum.data(), sums[0].data(), sum.size() * sizeof(float)) == 0);
  }
}

// What each rank hears when `how` happens to rank 1 while the others are in a long AllReduce.
std::vector<Complaint> HeardWhen(int rank_count, const std::function<void(LinkWire&)>& how) {
  std::vector<Complaint> heard(static_cast<size_t>(rank_count));
  ranks::RunAsThreads({rank_count, 2}, [&](ranks::Group& group) {
    auto wire = OpenLinkWire(group, Healthy(), {});
    LinkWire& link = **wire;
    const auto made = WireCollectives(std::move(*wire), OnlyBy(WireAlgorithm::kRing));
    std::vector<float> values(300'000, 1);
    const Values all{reinterpret_cast<std::byte*>(values.data()), values.size(),
                     sync::DataType::kFloat32};
    const auto call = [&] { return (*made)->AllReduce({}, all, sync::ReduceOp::kSum); };
    for (int i = 0; i < 3; ++i) static_cast<void>(call());
    if (group.rank() == 1) return how(link);
    const auto begin = Clock::now();
    const auto got = call();
    heard[static_cast<size_t>(group.rank())] = got ? "nothing" : got.error().message();
    if (Clock::now() - begin > std::chrono::seconds(5)) {
      heard[static_cast<size_t>(group.rank())] = "too late";
    }
  });
  return heard;
}

TEST_CASE("A rank that dies is named on all others", "[collective][wire]") {
  const int rank_count = GENERATE(2, 3, 5, 8);
  auto heard = HeardWhen(rank_count, [](LinkWire& wire) { wire.Sever(); });
  const std::string name = rank_count == 2 ? "rank 1" : "rank 1 on host-0";
  heard[1] = heard[0];
  CHECK(heard == std::vector<Complaint>(heard.size(), name + " has ended unexpectedly"));
}

TEST_CASE("A rank that stops tells all others why", "[collective][wire]") {
  auto heard =
      HeardWhen(5, [](LinkWire& wire) { wire.Stop(Error(ErrorCode::kIo, "rank 1: out of luck")); });
  heard[1] = heard[0];
  CHECK(heard == std::vector<Complaint>(5, "rank 1: out of luck"));
}

TEST_CASE("Stop ends a wait under way", "[collective][wire]") {
  std::vector<Complaint> heard(2);
  ranks::RunAsThreads({2}, [&](ranks::Group& group) {
    const auto made = OverLinks(group, OnlyBy(WireAlgorithm::kRing));
    static_cast<void>(made->Barrier({}));
    std::thread stopper;
    if (group.rank() == 0) {
      stopper = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        made->Stop(Error(ErrorCode::kIo, "enough"));
      });
      const auto got = made->Barrier({});
      heard[0] = got ? "nothing" : got.error().message();
      stopper.join();
    }
    // The other comes when all is over.
    static_cast<void>(group.Barrier());
    const auto got = made->Barrier({});
    heard[static_cast<size_t>(group.rank())] = got ? "nothing" : got.error().message();
  });
  CHECK(heard == std::vector<Complaint>(2, "enough"));
}

class PoorHealth final : public ranks::Health {
 public:
  Status Check() override { return Fail(ErrorCode::kPeerFailed, "rank 1 has been silent for 4 s"); }
  void GiveUp(const Error&) override {}
};

TEST_CASE("A rank that is silent is found while it is waited for", "[collective][wire]") {
  std::vector<Complaint> heard(3);
  ranks::RunAsThreads({3}, [&](ranks::Group& group) {
    PoorHealth poor;
    ranks::Health& health = group.rank() == 0 ? static_cast<ranks::Health&>(poor) : Healthy();
    auto wire = OpenLinkWire(group, health, {});
    static_cast<void>(group.Barrier());
    const auto fail = [&](const Status& status) {
      heard[static_cast<size_t>(group.rank())] = status ? "nothing" : status.error().message();
    };
    std::vector<std::byte> bytes(10);
    if (group.rank() != 1) {
      static_cast<void>((*wire)->StartReceive(1, bytes));
      fail((*wire)->AwaitReceive(1));
    }
    static_cast<void>(group.Barrier());
    // Nobody stays behind.
    if (group.rank() == 1) {
      static_cast<void>((*wire)->StartReceive(2, bytes));
      fail((*wire)->AwaitReceive(2));
    }
    static_cast<void>(group.Barrier());
  });
  CHECK(heard == std::vector<Complaint>(3, "rank 1 has been silent for 4 s"));
}

TEST_CASE("Tables are checked", "[collective][wire]") {
  CHECK(CheckWireTable(UsualWireTable()));
  CHECK_FALSE(CheckWireTable({}));
  CHECK_FALSE(CheckWireTable({{.bytes_max = 5}}));
  CHECK_FALSE(CheckWireTable({{.bytes_max = 5}, {.bytes_max = 5}, {}}));
  CHECK_FALSE(CheckWireTable({{.chunk_bytes = 0}}));
  CHECK_FALSE(CheckWireTable({{.chunk_depth = 0}}));
  CHECK_FALSE(CheckWireTable({{.algorithm = WireAlgorithm::kDoubling}}));
  CHECK(ParseWireAlgorithm("halving") == WireAlgorithm::kHalving);
  CHECK(ParseWireAlgorithm("magic").error().message() ==
        "'magic' is no way to reduce: there are doubling, ring, halving, direct");
  CHECK(TextOf({{.bytes_max = 100, .algorithm = WireAlgorithm::kDoubling}, {}}) ==
        "to 100 bytes: doubling\nall others: ring, chunks of 262144 bytes, 4 at once");
}

}  // namespace
}  // namespace lmdbio::sync
