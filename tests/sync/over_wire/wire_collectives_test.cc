// Goal: every algorithm over a wire does what any collectives do, for any ranks, and gives
// the same bits on all ranks and in every run; a rank that dies is named on all others; connections
// open when they are first used.
// Method: ranks played by threads, over real sockets of this host.
#include "lmdbio/sync/over_wire/wire_collectives.h"

#include <sys/socket.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/health/job_health.h"
#include "lmdbio/sync/over_wire/link_wire.h"
#include "lmdbio/sync/over_wire/wire_algorithms.h"
#include "lmdbio/sync/over_wire/wire_trial.h"
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

// The chunks are small, so that there are many of them.
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

TEST_CASE("More small messages than one system call takes are received in their order", "[wire]") {
  constexpr size_t kMessages = 100;
  std::vector<Complaint> found(2);
  ranks::RunAsThreads({2}, [&](ranks::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    auto wire = OpenLinkWire(group, Healthy(), {});
    std::vector<uint16_t> numbers(kMessages);
    for (size_t i = 0; i < kMessages && rank == 0; ++i) numbers[i] = static_cast<uint16_t>(i + 1);
    Status status;
    for (size_t i = 0; i < kMessages && status; ++i) {
      const MutableBytes message = std::as_writable_bytes(std::span(&numbers[i], 1));
      status = rank == 0 ? (*wire)->StartSend(1, message) : (*wire)->StartReceive(0, message);
    }
    for (size_t i = 0; i < kMessages && status; ++i) {
      status = rank == 0 ? (*wire)->AwaitSend(1) : (*wire)->AwaitReceive(0);
    }
    if (!status) found[rank] = status.error().message();
    for (size_t i = 0; i < kMessages; ++i) {
      if (numbers[i] != i + 1) found[rank] += fmt::format("message {} has {}; ", i, numbers[i]);
    }
    static_cast<void>(group.Barrier());
  });
  CHECK(found == std::vector<Complaint>(2));
}

// The message is too large for the connection, so it is sent only while both ranks look.
TEST_CASE("A look at a message lets it progress, and does not wait", "[wire]") {
  std::vector<test::Complaints> found(2);
  ranks::RunAsThreads({2}, [&](ranks::Group& group) {
    const auto rank = static_cast<size_t>(group.rank());
    test::Complaints& mine = found[rank];
    auto wire = OpenLinkWire(group, Healthy(), {});
    std::vector<std::byte> bytes(64 << 20, std::byte{static_cast<unsigned char>(rank)});
    const auto look = [&] { return rank == 0 ? (*wire)->IsSent(1) : (*wire)->IsReceived(0); };
    if (rank == 1) {
      mine.Expect((*wire)->StartReceive(0, bytes), "receive");
      const auto early = look();
      mine.Expect(early && !*early, "received before it was sent");
    }
    static_cast<void>(group.Barrier());
    if (rank == 0) {
      mine.Expect((*wire)->StartSend(1, bytes), "send");
      const auto early = look();
      mine.Expect(early && !*early, "sent before it was received");
    }
    static_cast<void>(group.Barrier());
    Result<bool> is_done = false;
    while (is_done && !*is_done) is_done = look();
    mine.Expect(is_done && *is_done, "a look fails");
    mine.Expect(look().value_or(false), "a message is not done any more");
    mine.Expect(rank == 0 ? (*wire)->AwaitSend(1) : (*wire)->AwaitReceive(0), "await");
    mine.Expect(bytes.front() == std::byte{0} && bytes.back() == std::byte{0}, "other bytes");
    static_cast<void>(group.Barrier());
    // A look also finds that the other rank has stopped.
    if (rank == 0) (*wire)->Stop(Error(ErrorCode::kInternal, "enough"));
    if (rank == 1) {
      mine.Expect((*wire)->StartSend(0, Bytes(bytes).first(1)), "send");
      mine.Expect((*wire)->StartReceive(0, bytes), "receive");
      const auto end = Clock::now() + std::chrono::seconds(30);
      is_done = false;
      while (is_done && Clock::now() < end) is_done = look();
      mine.Expect(!is_done && is_done.error().code() == ErrorCode::kPeerFailed, "no failure");
    }
    static_cast<void>(group.Barrier());
  });
  CHECK(found[0].list() == std::vector<Complaint>{});
  CHECK(found[1].list() == std::vector<Complaint>{});
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

// The description of rank 0.
std::string DescriptionOf(const WireCollectiveOptions& options) {
  std::string text;
  ranks::RunAsThreads({2}, [&](ranks::Group& group) {
    const auto made = OverLinks(group, options);
    if (made != nullptr && group.rank() == 0) text = made->Description();
  });
  return text;
}

TEST_CASE("An algorithm without chunk size or depth is measured", "[collective][wire]") {
  using Catch::Matchers::StartsWith;
  WireCollectiveOptions options{.table = {}, .algorithm = WireAlgorithm::kHalving};
  options.trial_time = std::chrono::milliseconds(20);
  SECTION("both") {}
  SECTION("the chunk size") { options.chunk_depth = 2; }
  SECTION("the depth") { options.chunk_bytes = 100'000; }
  const std::string text = DescriptionOf(options);
  CHECK_THAT(text, StartsWith("by a trial of 1024 to "));
  CHECK(text.find("halving, chunks of ") != std::string::npos);
  CHECK(text.find("ring") == std::string::npos);
  if (options.chunk_depth > 0) CHECK(text.find(", 2 at once") != std::string::npos);
  if (options.chunk_bytes > 0) CHECK(text.find("chunks of 100000 bytes") != std::string::npos);
}

// By ring every fourth call takes 0.1 ms, and the others 10 ms.
TEST_CASE("A trial chooses by the usual time, not by the least", "[collective][wire]") {
  std::vector<MeasuredWire> found(2);
  ranks::RunAsThreads({2}, [&](ranks::Group& group) {
    auto wire = OpenLinkWire(group, Healthy(), {});
    WireScratch scratch;
    int ring_calls = 0;
    Clock::time_point now{};
    const auto all_reduce = [&](const WireChoice& choice, const Values&) -> Status {
      std::chrono::microseconds time(10'000);
      if (choice.algorithm == WireAlgorithm::kDoubling) time = std::chrono::milliseconds(3);
      if (choice.algorithm == WireAlgorithm::kHalving) time = std::chrono::milliseconds(1);
      const bool is_ring = choice.algorithm == WireAlgorithm::kRing;
      if (is_ring && ++ring_calls % 4 == 0) time = std::chrono::microseconds(100);
      now += time;
      return {};
    };
    auto measured = MeasureWire({**wire, scratch, 4096, 1}, {.rank_count = 2},
                                std::chrono::seconds(20), all_reduce, [&now] { return now; });
    if (measured) found[static_cast<size_t>(group.rank())] = std::move(*measured);
    static_cast<void>(group.Barrier());
  });
  for (const MeasuredWire& of_rank : found) {
    REQUIRE_FALSE(of_rank.table.empty());
    CHECK(of_rank.table.front().algorithm == WireAlgorithm::kHalving);
    CHECK(of_rank.measured_bytes == found[0].measured_bytes);
    CHECK(of_rank.measured_bytes >= kTriedBytes.front());
  }
}

TEST_CASE("No trial measures a choice that is already made", "[collective][wire]") {
  WireCollectiveOptions options{.table = {}, .algorithm = WireAlgorithm::kHalving};
  std::string expected = "all others: halving, chunks of 100000 bytes, 2 at once";
  SECTION("by the options") {
    options.chunk_bytes = 100'000;
    options.chunk_depth = 2;
  }
  SECTION("by the time") {
    options.trial_time = std::chrono::milliseconds(0);
    expected = "all others: halving, chunks of 262144 bytes, 2 at once";
  }
  SECTION("by the algorithm, which has no chunks") {
    options.algorithm = WireAlgorithm::kDoubling;
    expected = "to 1048576 bytes: doubling\nall others: halving, chunks of 262144 bytes, 2 at once";
  }
  CHECK(DescriptionOf(options) == expected);
}

TEST_CASE("An invalid table of rank 0 is refused on every rank", "[collective][wire]") {
  std::vector<Complaint> wrong(3);
  ranks::RunAsThreads({.rank_count = 3}, [&](ranks::Group& group) {
    auto wire = OpenLinkWire(group, Healthy(), {});
    WireCollectiveOptions options = OnlyBy(WireAlgorithm::kRing);
    if (group.rank() == 0) options.table.back().bytes_max = 5;
    const auto made = WireCollectives(std::move(*wire), options);
    if (made || made.error().code() != ErrorCode::kInvalidArgument) {
      wrong[static_cast<size_t>(group.rank())] = "accepts it";
    }
  });
  CHECK(wrong == std::vector<Complaint>(3));
}

// A sum that depends on the order of the ranks.
std::vector<float> SumOf(ranks::Group& group, const WireCollectiveOptions& options) {
  std::vector<float> values(20'011);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = 1.0F / static_cast<float>(i + 1) * static_cast<float>(group.rank() * 37 % 11 + 1);
  }
  const auto made = OverLinks(group, options);
  const auto outcome = made->AllReduce(
      {.digest = 1},
      {reinterpret_cast<std::byte*>(values.data()), values.size(), DataType::kFloat32},
      ReduceOp::kSum);
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

// The error of each rank after `how` has happened to rank 1, while the others are in an AllReduce.
std::vector<Complaint> HeardWhen(int rank_count, const std::function<void(LinkWire&)>& how) {
  std::vector<Complaint> heard(static_cast<size_t>(rank_count));
  ranks::RunAsThreads({rank_count, 2}, [&](ranks::Group& group) {
    auto wire = OpenLinkWire(group, Healthy(), {});
    LinkWire& link = **wire;
    const auto made = WireCollectives(std::move(*wire), OnlyBy(WireAlgorithm::kRing));
    std::vector<float> values(300'000, 1);
    const Values all{reinterpret_cast<std::byte*>(values.data()), values.size(),
                     DataType::kFloat32};
    const auto call = [&] { return (*made)->AllReduce({}, all, ReduceOp::kSum); };
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
    // The other rank makes its call after the wire of rank 0 has stopped.
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

TEST_CASE("A wait ends when the health watch reports a failure", "[collective][wire]") {
  std::vector<Complaint> heard(3);
  ranks::RunAsThreads({3}, [&](ranks::Group& group) {
    PoorHealth poor;
    auto wire = OpenLinkWire(group, poor, {});
    static_cast<void>(group.Barrier());
    std::vector<std::byte> bytes(10);
    const int from = (group.rank() + 1) % 3;  // which sends nothing
    static_cast<void>((*wire)->StartReceive(from, bytes));
    const Status status = (*wire)->AwaitReceive(from);
    heard[static_cast<size_t>(group.rank())] = status ? "nothing" : status.error().message();
    static_cast<void>(group.Barrier());
  });
  CHECK(heard == std::vector<Complaint>(3, "rank 1 has been silent for 4 s"));
}

// The sockets of this process that do not listen.
size_t ConnectedSockets() {
  size_t count = 0;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    int listens = 0;
    socklen_t size = sizeof listens;
    const int fd = std::stoi(one.path().filename().string());
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 0) ++count;
  }
  return count;
}

TEST_CASE("Connections open when they are first used, and only then", "[collective][wire]") {
  constexpr int kRankCount = 8;
  const size_t before = ConnectedSockets();
  std::vector<size_t> counts;
  ranks::RunAsThreads({kRankCount}, [&](ranks::Group& group) {
    auto wire = OpenLinkWire(group, Healthy(), {});
    const auto count = [&] {
      static_cast<void>(group.Barrier());
      if (group.rank() == 0) counts.push_back(ConnectedSockets() - before);
      static_cast<void>(group.Barrier());
    };
    count();
    std::vector<std::byte> sent(100'000);
    std::vector<std::byte> received(sent.size());
    for (int step = 0; step < 2; ++step) {
      static_cast<void>((*wire)->Exchange((group.rank() + 1) % kRankCount, sent,
                                          (group.rank() + kRankCount - 1) % kRankCount, received));
      count();
    }
  });
  // One connection for each rank, with two ends.
  CHECK(counts == std::vector<size_t>{0, 2 * kRankCount, 2 * kRankCount});
}

TEST_CASE("A first send to a rank that has gone fails soon and names it", "[collective][wire]") {
  Complaint heard;
  ranks::RunAsThreads({2}, [&](ranks::Group& group) {
    auto wire = OpenLinkWire(group, Healthy(), {});
    if (group.rank() == 1) wire->reset();
    static_cast<void>(group.Barrier());
    if (group.rank() == 1) return;
    const std::vector<std::byte> bytes(10);
    const auto begin = Clock::now();
    static_cast<void>((*wire)->StartSend(1, bytes));
    const Status status = (*wire)->AwaitSend(1);
    heard = status ? "nothing" : status.error().message();
    if (Clock::now() - begin > std::chrono::seconds(10)) heard = "too late";
  });
  INFO(heard);
  CHECK(heard.find("no connection to rank 1 within 1 s (connect: Connection refused), tried ") ==
        0);
}

TEST_CASE("A large message that waits delays no sign of life", "[collective][wire]") {
  std::vector<Complaint> heard(2);
  ranks::RunAsThreads({2, 1}, [&](ranks::Group& group) {
    using std::chrono::milliseconds;
    auto health = std::move(*ranks::JobHealth::Create(group, milliseconds(1500)));
    auto wire = OpenLinkWire(group, Healthy(), {});
    std::vector<std::byte> bytes(64 << 20);
    if (group.rank() == 0) static_cast<void>((*wire)->StartSend(1, bytes));
    // Rank 1 does not receive yet, so the buffers of the connection are full.
    const auto until = Clock::now() + milliseconds(3000);
    while (Clock::now() < until) {
      const Status status = health->Check();
      if (!status) heard[static_cast<size_t>(group.rank())] = status.error().message();
      std::this_thread::sleep_for(milliseconds(20));
    }
    if (group.rank() == 1) static_cast<void>((*wire)->StartReceive(0, bytes));
    const Status done = group.rank() == 0 ? (*wire)->AwaitSend(1) : (*wire)->AwaitReceive(0);
    if (!done) heard[static_cast<size_t>(group.rank())] = done.error().message();
    static_cast<void>(group.Barrier());
  });
  CHECK(heard == std::vector<Complaint>(2));
}

TEST_CASE("AllGather by doubling gathers parts of any sizes", "[collective][wire]") {
  const int rank_count = GENERATE(1, 2, 3, 5, 6, 7, 8, 12);
  std::vector<Complaint> wrong(static_cast<size_t>(rank_count));
  ranks::RunAsThreads({rank_count}, [&](ranks::Group& group) {
    auto wire = OpenLinkWire(group, Healthy(), {});
    std::vector<uint64_t> part_bytes;
    std::vector<std::byte> expected;
    for (int rank = 0; rank < rank_count; ++rank) {
      part_bytes.push_back(static_cast<uint64_t>(rank % 3 * 1000));
      expected.insert(expected.end(), part_bytes.back(), std::byte(rank + 1));
    }
    std::vector<std::byte> all(expected.size());
    uint64_t begin = 0;
    for (int rank = 0; rank < group.rank(); ++rank) begin += part_bytes[static_cast<size_t>(rank)];
    std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(begin),
                part_bytes[static_cast<size_t>(group.rank())], std::byte(group.rank() + 1));
    WireScratch scratch;
    const Status status = DoublingAllGather({**wire, scratch, 300, 2}, all, part_bytes);
    auto& mine = wrong[static_cast<size_t>(group.rank())];
    if (!status) mine = status.error().message();
    if (all != expected) mine += " other bytes";
    static_cast<void>(group.Barrier());
  });
  CHECK(wrong == std::vector<Complaint>(static_cast<size_t>(rank_count)));
}

// The direct algorithms would connect all pairs of ranks.
TEST_CASE("More than 64 ranks use no direct algorithm", "[collective][wire]") {
  constexpr int kRankCount = kDirectRanksMax + 1;
  std::vector<Complaint> wrong(kRankCount);
  const size_t before = ConnectedSockets();
  size_t most = 0;
  ranks::RunAsThreads({kRankCount}, [&](ranks::Group& group) {
    const auto made = OverLinks(group, OnlyBy(WireAlgorithm::kHalving));
    auto& mine = wrong[static_cast<size_t>(group.rank())];
    std::vector<float> values(2 * kRankCount);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    const Values all{reinterpret_cast<std::byte*>(values.data()), values.size(),
                     DataType::kFloat32};
    std::vector<float> part(2);
    const auto reduced = made->ReduceScatter({}, all, reinterpret_cast<std::byte*>(part.data()),
                                             std::vector<uint64_t>(kRankCount, 2), ReduceOp::kSum);
    if (!reduced || part[1] != static_cast<float>(kRankCount * (2 * group.rank() + 1))) {
      mine = "a wrong part";
    }
    if (values[5] != 5) mine += " an input that has changed";
    const auto halved = made->ReduceToParts({}, all, {ReduceOp::kSum, 0.5});
    const auto whole = made->GatherParts({}, all);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto sum = static_cast<float>(i * kRankCount) * 0.5F;
      if (!halved || !whole || values[i] != sum) mine += " a wrong sum by halves";
    }
    std::vector<std::byte> ranks_of_all(kRankCount);
    const std::byte own{static_cast<unsigned char>(group.rank())};
    const auto gathered =
        made->AllGather({}, std::span(&own, 1), ranks_of_all, std::vector<uint64_t>(kRankCount, 1));
    for (int rank = 0; rank < kRankCount; ++rank) {
      if (!gathered || ranks_of_all[static_cast<size_t>(rank)] != std::byte(rank)) {
        mine += " a wrong rank";
      }
    }
    static_cast<void>(group.Barrier());
    if (group.rank() == 0) most = ConnectedSockets() - before;
    static_cast<void>(group.Barrier());
  });
  CHECK(wrong == std::vector<Complaint>(kRankCount));
  CHECK(most < 2 * 30 * kRankCount);
}

TEST_CASE("A table with one algorithm that is no ring is reproducible", "[collective][wire]") {
  CHECK_FALSE(IsReproducible(UsualWireTable()));
  CHECK_FALSE(IsReproducible(OneWireAlgorithm(WireAlgorithm::kRing, 0, 0)));
  CHECK_FALSE(IsReproducible(OneWireAlgorithm(WireAlgorithm::kDoubling, 0, 0)));
  CHECK_FALSE(IsReproducible({{.bytes_max = 5, .algorithm = WireAlgorithm::kDirect},
                              {.algorithm = WireAlgorithm::kHalving}}));
  CHECK(IsReproducible(OneWireAlgorithm(WireAlgorithm::kDirect, 0, 0)));
  CHECK(IsReproducible({{.bytes_max = 5, .algorithm = WireAlgorithm::kHalving, .chunk_depth = 1},
                        {.algorithm = WireAlgorithm::kHalving}}));
  CHECK(ReproducibleAlgorithm(1) == WireAlgorithm::kDirect);
  CHECK(ReproducibleAlgorithm(kDirectRanksMax) == WireAlgorithm::kDirect);
  CHECK(ReproducibleAlgorithm(kDirectRanksMax + 1) == WireAlgorithm::kHalving);
}

// Sums of other sizes, and at other places of a call, as in the size of all values.
TEST_CASE("Reproducible algorithms reduce a value alike wherever it lies", "[collective][wire]") {
  constexpr size_t kCount = 3000;
  const auto algorithm = GENERATE(WireAlgorithm::kHalving, WireAlgorithm::kDirect);
  const int rank_count = GENERATE(3, 4, 5, 7);
  INFO(NameOf(algorithm) << ", " << rank_count << " ranks");
  std::vector<test::Complaints> found(static_cast<size_t>(rank_count));
  ranks::RunAsThreads({rank_count}, [&](ranks::Group& group) {
    test::Complaints& mine = found[static_cast<size_t>(group.rank())];
    const auto made = OverLinks(group, OnlyBy(algorithm));
    mine.Expect(made->is_reproducible(), "no promise");
    std::vector<float> values(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      values[i] =
          std::ldexp(1.0F + static_cast<float>(i % 7) / 3,
                     static_cast<int>((i * 5 + 11 * static_cast<size_t>(group.rank())) % 23));
    }
    std::vector<float> whole = values;
    mine.Expect(
        made->AllReduce({},
                        {reinterpret_cast<std::byte*>(whole.data()), kCount, DataType::kFloat32},
                        ReduceOp::kSum)
            .has_value(),
        "AllReduce");
    for (const size_t begin : {1UL, 777UL, 1500UL, 2990UL}) {
      for (const size_t count : {1UL, 9UL, kCount - begin}) {
        if (begin + count > kCount) continue;
        std::vector<float> part(values.begin() + static_cast<ptrdiff_t>(begin),
                                values.begin() + static_cast<ptrdiff_t>(begin + count));
        mine.Expect(
            made->AllReduce({},
                            {reinterpret_cast<std::byte*>(part.data()), count, DataType::kFloat32},
                            ReduceOp::kSum)
                .has_value(),
            "AllReduce");
        mine.Expect(std::memcmp(part.data(), &whole[begin], count * sizeof(float)) == 0,
                    fmt::format("other bits at {} of {}", begin, count));
      }
    }
  });
  for (const test::Complaints& one : found) CHECK(one.list() == std::vector<Complaint>{});
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
        "unknown algorithm 'magic' for AllReduce; expected one of doubling, ring, halving, direct");
  CHECK(TextOf({{.bytes_max = 100, .algorithm = WireAlgorithm::kDoubling}, {}}) ==
        "to 100 bytes: doubling\nall others: ring, chunks of 262144 bytes, 2 at once");
}

}  // namespace
}  // namespace lmdbio::sync
