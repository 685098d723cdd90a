#include "lmdbio/ranks/group/group.h"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/ranks/group/rank_names.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "tests/ranks/group/group_checks.h"
#include "tests/ranks/hooked_group.h"
#include "tests/support/catch.h"
#include "tests/support/in_child.h"

namespace lmdbio::ranks {
namespace {

using test::Complaints;
using test::GroupCheck;

// The complaints of all ranks that run `body`.
std::vector<std::string> RunRanks(ThreadRanks ranks,
                                  const std::function<void(Group&, Complaints&)>& body) {
  std::vector<Complaints> complaints(static_cast<size_t>(ranks.rank_count));
  RunAsThreads(ranks,
               [&](Group& group) { body(group, complaints[static_cast<size_t>(group.rank())]); });
  std::vector<std::string> all;
  for (const Complaints& one : complaints)
    all.insert(all.end(), one.list().begin(), one.list().end());
  return all;
}

TEST_CASE("A forked child does not inherit a group's memory, and its parent keeps it", "[comm]") {
  const auto group = SoloGroup();
  const auto memory = group->AllocateShared(8 << 20);
  REQUIRE(memory);
  const MutableBytes bytes = (*memory)->bytes();
  bytes[5 << 20] = std::byte{1};
  CHECK(test::InChild([&] {
          const bool is_zero = bytes[5 << 20] == std::byte{0};
          bytes[5 << 20] = std::byte{2};
          return is_zero ? test::Verdict::kRight : test::Verdict::kWrong;
        }) == test::Verdict::kRight);
  CHECK(bytes[5 << 20] == std::byte{1});
}

TEST_CASE("A failure whose text is too long for any rank is refused", "[comm]") {
  const auto solo = SoloGroup();
  HookedGroup group(*solo, {});
  // A rank that has failed, with a text of 2^60 bytes.
  group.set_gather([](Bytes) {
    struct {
      int32_t code, error_number;
      uint64_t text_bytes;
    } const verdict{static_cast<int32_t>(ErrorCode::kIo), 5, uint64_t{1} << 60};
    const Bytes bytes = std::as_bytes(std::span(&verdict, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  });
  const Status agreed = Agree(group, {});
  REQUIRE_FALSE(agreed);
  CHECK(agreed.error().message() == "rank 0 has sent a malformed failure");
}

TEST_CASE("A name that does not end is cut", "[comm]") {
  const auto solo = SoloGroup();
  HookedGroup group(*solo, {});
  group.set_gather([](Bytes mine) { return std::vector(mine.size(), std::byte{'x'}); });
  const auto names = GatherRankNames(group, 0);
  REQUIRE(names);
  CHECK(*names == std::vector<std::string>{std::string(256, 'x')});
}

TEST_CASE("SoloGroup passes the checks of all groups", "[comm]") {
  const auto group = SoloGroup();
  REQUIRE(group->rank() == 0);
  REQUIRE(group->size() == 1);
  for (const GroupCheck& check : test::GroupChecks()) {
    INFO(check.name);
    Complaints complaints;
    check.run(*group, complaints);
    CHECK(complaints.list() == std::vector<std::string>{});
  }
}

TEST_CASE("RunAsThreads makes groups that pass the checks of all groups", "[comm]") {
  const int rank_count = GENERATE(1, 2, 3, 8);
  const int ranks_per_host = GENERATE(1, 2, 3, 1 << 20);
  CAPTURE(rank_count, ranks_per_host);
  for (const GroupCheck& check : test::GroupChecks()) {
    INFO(check.name);
    const auto complaints =
        RunRanks({.rank_count = rank_count, .ranks_per_host = ranks_per_host}, check.run);
    CHECK(complaints == std::vector<std::string>{});
  }
}

TEST_CASE("RunAsThreads makes neighbours share a host", "[comm]") {
  const int ranks_per_host = GENERATE(1, 2, 3, 8, 9);
  const int rank_count = 8;
  const auto complaints = RunRanks(
      {.rank_count = rank_count, .ranks_per_host = ranks_per_host},
      [&](Group& group, Complaints& mine) {
        const auto host = group.SplitByHost();
        if (!host) return mine.Expect(false, "SplitByHost failed");
        const int first = group.rank() / ranks_per_host * ranks_per_host;
        mine.Expect((*host)->rank() == group.rank() - first, "rank on the host");
        mine.Expect((*host)->size() == std::min(ranks_per_host, rank_count - first), "host size");
        const auto memory = group.AllocateShared(100);
        mine.Expect(ranks_per_host >= rank_count
                        ? memory.has_value()
                        : !memory && memory.error().code() == ErrorCode::kInvalidArgument,
                    "memory across hosts");
      });
  CHECK(complaints == std::vector<std::string>{});
}

// The last rank arrives late. No rank may pass a barrier before it has arrived.
TEST_CASE("Barrier holds all ranks until the last one arrives", "[comm]") {
  std::atomic<int> arrived_count = 0;
  const auto complaints = RunRanks({.rank_count = 5}, [&](Group& group, Complaints& mine) {
    for (int round = 1; round <= 20; ++round) {
      if (group.rank() == round % 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++arrived_count;
      mine.Expect(group.Barrier(), "Barrier");
      mine.Expect(arrived_count >= round * 5, "passed before the last came");
      mine.Expect(group.Barrier(), "Barrier");
    }
  });
  CHECK(complaints == std::vector<std::string>{});
}

}  // namespace
}  // namespace lmdbio::ranks
