#include "lmdbio/sync/over_memory/host_collectives.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "lmdbio/ranks/group/thread_group.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/sync/collective/collective_checks.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::sync {
namespace {

using Clock = std::chrono::steady_clock;
using test::Complaints;

ranks::SoloHealth good_health;

test::CollectivesFactory FactoryOf(const HostOptions& options) {
  return [options](ranks::Group& group) -> std::unique_ptr<Collectives> {
    auto made = HostCollectives(group, good_health, options);
    return made ? std::move(*made) : nullptr;
  };
}

void CheckEverything(int rank_count, const HostOptions& options,
                     const test::CollectiveSizes& sizes = {}) {
  CAPTURE(rank_count, static_cast<int>(options.wait), static_cast<int>(options.way),
          options.staging_bytes, options.registered_bytes);
  CHECK(test::RunCollectiveChecks(rank_count, FactoryOf(options), sizes) ==
        std::vector<std::string>{});
}

// The complaints of all ranks, each of which runs `body` with collectives of its own.
std::vector<std::string> RunRanks(
    int rank_count, const HostOptions& options,
    const std::function<void(Collectives& all, Complaints& complaints)>& body) {
  std::vector<Complaints> complaints(static_cast<size_t>(rank_count));
  ranks::RunAsThreads({.rank_count = rank_count}, [&](ranks::Group& group) {
    const auto all = FactoryOf(options)(group);
    body(*all, complaints[static_cast<size_t>(group.rank())]);
  });
  std::vector<std::string> list;
  for (const Complaints& one : complaints)
    list.insert(list.end(), one.list().begin(), one.list().end());
  return list;
}

TEST_CASE("HostCollectives passes the checks of all collectives", "[collective]") {
  const int rank_count = GENERATE(1, 2, 3, 4, 5, 8);
  CheckEverything(rank_count, {.staging_bytes = 320 << 10, .registered_bytes = 1 << 20});
}

TEST_CASE("HostCollectives does the same in every way", "[collective]") {
  const int rank_count = GENERATE(2, 3);
  CheckEverything(
      rank_count,
      {.wait = WaitMode::kSpin, .way = HostAlgorithm::kOneShot, .staging_bytes = 320 << 10});
  CheckEverything(rank_count, {.way = HostAlgorithm::kTwoShot, .registered_bytes = 1 << 20});
}

// Staging of few cache lines: many chunks, of which each lets ranks wait.
TEST_CASE("HostCollectives works with little staging", "[collective]") {
  const int rank_count = GENERATE(2, 5);
  const test::CollectiveSizes sizes{.small = {0, 8, 40, 128, 1000}, .large = {4000, 20'008}};
  CheckEverything(rank_count, {.staging_bytes = 0}, sizes);
  CheckEverything(rank_count, {.way = HostAlgorithm::kOneShot, .staging_bytes = 2048}, sizes);
}

// Every algorithm reduces in the order of the ranks.
TEST_CASE("HostCollectives gives the same bits in every way", "[collective]") {
  const int rank_count = GENERATE(2, 3, 8);
  const HostAlgorithm way =
      GENERATE(HostAlgorithm::kAuto, HostAlgorithm::kOneShot, HostAlgorithm::kTwoShot);
  const uint64_t registered_bytes = GENERATE(0, 1 << 20);
  const DataType type = GENERATE(DataType::kFloat32, DataType::kFloat16);
  const auto complaints = RunRanks(
      rank_count, {.way = way, .staging_bytes = 128 << 10, .registered_bytes = registered_bytes},
      [&](Collectives& all, Complaints& mine) {
        for (const size_t count : {1, 5, 4097, 60'003}) {
          const size_t bytes = count * ElementBytes(type);
          std::vector<std::string> texts;
          std::vector<const std::byte*> sources;
          for (int r = 0; r < rank_count; ++r) {
            texts.push_back(test::Random(static_cast<uint64_t>(r) + count).BytesOf(bytes));
          }
          for (const auto& text : texts)
            sources.push_back(reinterpret_cast<const std::byte*>(text.data()));
          const auto expected = test::ReduceSlowly(type, ReduceOp::kSum, sources, count);
          std::string own = texts[static_cast<size_t>(all.rank())];
          std::byte* const place = registered_bytes > 0 ? all.registered().data()
                                                        : reinterpret_cast<std::byte*>(own.data());
          std::memcpy(place, own.data(), bytes);
          const auto got = all.AllReduce({}, {place, count, type}, ReduceOp::kSum);
          mine.Expect(got && *got == CallOutcome::kDone, "AllReduce");
          mine.Expect(test::FirstDifference(type, place, expected.data(), count) == count,
                      "not in the order of the ranks");
        }
      });
  CHECK(complaints == std::vector<std::string>{});
}

TEST_CASE("HostCollectives declines calls of different kinds", "[collective]") {
  const auto complaints = RunRanks(3, {}, [](Collectives& all, Complaints& mine) {
    std::vector<float> values(100'000, 1.0F);
    auto* const data = reinterpret_cast<std::byte*>(values.data());
    const auto expect_declined = [&](const Result<CallOutcome>& got, const char* what) {
      mine.Expect(got && *got == CallOutcome::kDeclined, what);
    };
    const auto op = all.rank() == 1 ? ReduceOp::kMax : ReduceOp::kSum;
    expect_declined(all.AllReduce({}, {data, 8, DataType::kFloat32}, op), "other reductions");
    const auto type = all.rank() == 1 ? DataType::kInt32 : DataType::kFloat32;
    expect_declined(all.AllReduce({}, {data, 8, type}, ReduceOp::kSum), "other types");
    expect_declined(all.rank() == 1
                        ? all.Barrier({})
                        : all.AllReduce({}, {data, 8, DataType::kFloat32}, ReduceOp::kSum),
                    "other calls");
    expect_declined(
        all.rank() == 1
            ? all.Broadcast({}, std::as_writable_bytes(std::span(values)), 0)
            : all.AllReduce({}, {data, values.size(), DataType::kFloat32}, ReduceOp::kSum),
        "other large calls");
    const int root = all.rank() == 1 ? 0 : 2;
    expect_declined(all.Broadcast({}, std::as_writable_bytes(std::span(values)), root),
                    "other roots");
    const auto done = all.Barrier({});
    mine.Expect(done && *done == CallOutcome::kDone, "afterwards");
    mine.Expect(values == std::vector<float>(100'000, 1.0F), "wrote");
  });
  CHECK(complaints == std::vector<std::string>{});
}

TEST_CASE("HostCollectives refuses options that differ", "[collective]") {
  ranks::RunAsThreads({.rank_count = 2}, [](ranks::Group& group) {
    const auto made = HostCollectives(
        group, good_health,
        {.staging_bytes = uint64_t{1} << (20 + static_cast<uint64_t>(group.rank()))});
    // Catch2's macros are not for threads.
    if (made || made.error().code() != ErrorCode::kInvalidArgument) std::abort();
  });
}

TEST_CASE("HostCollectives does without registered memory where there is no room", "[collective]") {
  const auto complaints =
      RunRanks(2, {.registered_bytes = uint64_t{1} << 60}, [](Collectives& all, Complaints& mine) {
        mine.Expect(all.registered().empty(), "an exabyte");
        const auto done = all.Barrier({});
        mine.Expect(done && *done == CallOutcome::kDone, "Barrier");
      });
  CHECK(complaints == std::vector<std::string>{});
}

// Finds a rank gone after a while, on one of the ranks.
class FailingHealth final : public ranks::Health {
 public:
  explicit FailingHealth(bool fails) : fails_(fails) {}
  Status Check() override {
    if (!fails_ || Clock::now() < fails_at_) return {};
    return Fail(ErrorCode::kPeerFailed, "rank 2 was seen leaving");
  }
  void GiveUp(const Error&) override {}

 private:
  bool fails_;
  Clock::time_point fails_at_ = Clock::now() + std::chrono::milliseconds(200);
};

// One rank makes no call. Another rank finds that by its health, and all fail.
TEST_CASE("HostCollectives ends when the health does", "[collective]") {
  const WaitMode wait = GENERATE(WaitMode::kSleep, WaitMode::kSpin);
  const size_t count = GENERATE(1, 1 << 20);
  std::vector<Complaints> complaints(4);
  std::atomic<int> ended_count{0};
  ranks::RunAsThreads({.rank_count = 4}, [&](ranks::Group& group) {
    Complaints& mine = complaints[static_cast<size_t>(group.rank())];
    FailingHealth health(group.rank() == 1);
    auto all = HostCollectives(group, health, {.wait = wait});
    mine.Expect(all.has_value(), "no collectives");
    if (!all) return;
    if (group.rank() == 2) {
      while (ended_count.load() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    std::vector<float> values(count);
    const auto before = Clock::now();
    const auto got = (*all)->AllReduce(
        {}, {reinterpret_cast<std::byte*>(values.data()), count, DataType::kFloat32},
        ReduceOp::kSum);
    mine.Expect(!got && got.error().code() == ErrorCode::kPeerFailed, "does not fail");
    mine.Expect(!got && got.error().message().find("was seen leaving") != std::string::npos,
                "fails with other words");
    mine.Expect(Clock::now() - before < std::chrono::seconds(5), "takes long");
    ended_count.fetch_add(1);
  });
  for (const Complaints& one : complaints) CHECK(one.list() == std::vector<std::string>{});
}

// From another thread, while its own call waits.
TEST_CASE("Stop ends the own call, too", "[collective]") {
  std::atomic<bool> has_ended{false};
  const auto complaints = RunRanks(2, {}, [&](Collectives& all, Complaints& mine) {
    if (all.rank() == 1) {
      while (!has_ended.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    std::thread stopper([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      all.Stop(Error(ErrorCode::kInternal, "enough"));
    });
    const auto got = all.Barrier({});
    mine.Expect(!got && got.error().message().find("enough") != std::string::npos, "goes on");
    has_ended.store(true);
    stopper.join();
  });
  CHECK(complaints == std::vector<std::string>{});
}

}  // namespace
}  // namespace lmdbio::sync
