// Goal: ranks that meet without MPI are a group as any other; a rank that is killed, at any moment,
// is named by all others within seconds, and leaves nothing behind.
#include "lmdbio/ranks/launcher/launched_group.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/linked/connected_group.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/group/group_checks.h"
#include "tests/ranks/launcher/launched_ranks.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

using test::Complaints;
using test::ForkedJob;
using test::MeetingKind;

constexpr double kNamedWithin_s = 5;

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST_CASE("LaunchedGroup passes the checks of all groups", "[launcher]") {
  const auto kind = GENERATE(MeetingKind::kHosted, MeetingKind::kStore);
  const int size = GENERATE(1, 2, 3, 7, 22);
  CAPTURE(size);
  const size_t before = OpenDescriptors();
  std::vector<Complaints> complaints(static_cast<size_t>(size));
  test::RunLaunched(kind, size, [&](int rank, Result<std::unique_ptr<Group>> group) {
    Complaints& mine = complaints[static_cast<size_t>(rank)];
    mine.Expect(group.has_value(), group ? "" : group.error().message());
    if (!group) return;
    mine.Expect((*group)->rank() == rank && (*group)->size() == size, "rank or size");
    mine.Expect((*group)->CheckRanks(), "CheckRanks");
    for (const test::GroupCheck& check : test::GroupChecks()) check.run(**group, mine);
  });
  for (const Complaints& one : complaints) CHECK(one.list() == std::vector<std::string>{});
  CHECK(OpenDescriptors() == before);
}

TEST_CASE("A LaunchedGroup moves more than the buffers of a connection", "[launcher]") {
  constexpr size_t kBytes = 24 << 20;
  std::vector<std::string> wrong(4);
  test::RunLaunched(MeetingKind::kHosted, 4, [&](int rank, Result<std::unique_ptr<Group>> group) {
    std::string& mine = wrong[static_cast<size_t>(rank)];
    if (!group) return void(mine = group.error().message());
    std::vector<std::byte> bytes(kBytes, static_cast<std::byte>(rank));
    const auto all = (*group)->AllGather(Bytes(bytes).first(kBytes / 4));
    if (!all || all->size() != kBytes) return void(mine = "AllGather");
    for (size_t i = 0; i < kBytes; i += 4099) {
      if ((*all)[i] != static_cast<std::byte>(i / (kBytes / 4))) mine = "a gathered byte";
    }
    if (!(*group)->Broadcast(3, bytes)) mine = "Broadcast";
    if (bytes.front() != std::byte{3} || bytes.back() != std::byte{3}) mine = "a broadcast byte";
  });
  CHECK(wrong == std::vector<std::string>(4));
}

TEST_CASE("Barrier of a LaunchedGroup holds all ranks until the last one arrives", "[launcher]") {
  std::atomic<int> arrived_count = 0;
  std::vector<std::string> wrong(5);
  test::RunLaunched(MeetingKind::kStore, 5, [&](int rank, Result<std::unique_ptr<Group>> group) {
    std::string& mine = wrong[static_cast<size_t>(rank)];
    if (!group) return void(mine = group.error().message());
    for (int round = 1; round <= 20; ++round) {
      if (rank == round % 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++arrived_count;
      if (!(*group)->Barrier()) mine = "Barrier";
      if (arrived_count < round * 5) mine = "passed before the last came";
      if (!(*group)->Barrier()) mine = "Barrier";
    }
  });
  CHECK(wrong == std::vector<std::string>(5));
}

TEST_CASE("Ranks that make different collective calls get an error", "[launcher]") {
  std::vector<std::string> heard(6);
  test::RunLaunched(MeetingKind::kHosted, 6, [&](int rank, Result<std::unique_ptr<Group>> group) {
    std::string& mine = heard[static_cast<size_t>(rank)];
    if (!group) return void(mine = group.error().message());
    std::vector<std::byte> bytes(8);
    Status met = rank == 5 ? (*group)->Broadcast(5, bytes) : (*group)->Barrier();
    // A rank whose call needed no other one hears it at its next call.
    if (met) met = (*group)->Barrier();
    mine = met ? "no error" : met.error().message();
  });
  for (const std::string& one : heard) {
    CAPTURE(one);
    CHECK(one.find("ranks make different collective calls") != std::string::npos);
  }
}

TEST_CASE("A rank that leaves its group early is an error to all others", "[launcher]") {
  std::vector<std::string> heard(6);
  test::RunLaunched(MeetingKind::kHosted, 6, [&](int rank, Result<std::unique_ptr<Group>> group) {
    std::string& mine = heard[static_cast<size_t>(rank)];
    if (!group) return void(mine = group.error().message());
    if (rank == 5) return;
    const Status met = (*group)->Barrier();
    mine = met ? "no error" : met.error().message();
  });
  CHECK(heard[5].empty());
  for (size_t rank = 0; rank < 5; ++rank) {
    CHECK(heard[rank] == "rank 5 has ended unexpectedly");
  }
}

// The names in /dev/shm, without those that jobs of Open MPI and Python make beside this test.
std::set<std::string> SharedFiles() {
  constexpr std::array kOfOthers = {"vader_segment", "sm_segment", "osc_",
                                    "torch_",        "psm_",       "sem."};
  std::set<std::string> names;
  for (const auto& one : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = one.path().filename();
    const auto begins = [&](const char* prefix) { return name.starts_with(prefix); };
    if (std::ranges::none_of(kOfOthers, begins)) names.insert(name);
  }
  return names;
}

// The moments at which the victim is killed.
enum class Moment { kIdle, kInBarrier, kInPart, kInMemory };

// The report of a rank: "" if it has named the victim in time.
std::string Survive(Group& group, ForkedJob& job, int victim, Moment moment) {
  const auto part = group.Split(group.rank() % 2);
  const auto host = group.SplitByHost();
  if (!part || !host) return "Split";
  const auto memory = (*host)->AllocateShared(1 << 20);
  if (!memory) return memory.error().message();
  (*memory)->bytes()[static_cast<size_t>(group.rank())] = std::byte{1};
  job.SayReady();
  if (group.rank() == victim) ::pause();
  Status alive;
  if (moment == Moment::kInBarrier) alive = group.Barrier();
  if (moment == Moment::kInPart) alive = (*part)->Barrier();
  if (moment == Moment::kInMemory) {
    const auto more = (*host)->AllocateShared(4096);
    if (!more) alive = Fail(more.error().Copy());
  }
  // The part without the victim, and a rank that makes no call, look at the others.
  while (alive) {
    ::usleep(1000);
    alive = group.CheckRanks();
  }
  const double seconds = job.SecondsSinceSignal();
  if (seconds > kNamedWithin_s) return fmt::format("{} s", seconds);
  if (alive.error().code() != ErrorCode::kPeerFailed) return alive.error().message();
  const std::string expected = fmt::format("rank {} has ended unexpectedly", victim);
  const std::string& heard = alive.error().message();
  // From AllocateHostMemory, the reason is the same.
  return heard.find(expected) != std::string::npos ? "" : heard;
}

// The report of a rank of a job in which rank 1 is stopped for a while.
std::string HearOfStop(Group& group, ForkedJob& job, const std::string& expected) {
  job.SayReady();
  Status alive;
  while (alive) {
    ::usleep(1000);
    alive = group.CheckRanks();
  }
  if (job.SecondsSinceSignal() > kNamedWithin_s) return "too late";
  if (alive.error().message() != expected) return alive.error().message();
  // Its collective calls say the same, also in a part without the stopped rank.
  const Status barrier = group.Barrier();
  if (barrier || barrier.error().message() != expected) return "Barrier";
  return "";
}

TEST_CASE("All ranks name a rank that is stopped, also this one when it goes on", "[launcher]") {
  constexpr int kSize = 6;
  REQUIRE(::setenv("LMDBIO_RANK_SILENCE_LIMIT_MS", "1000", 1) == 0);
  const uint16_t port = test::FreePorts(1);
  ForkedJob job(kSize, kSize);
  job.Start([&](Group& forked, ForkedJob& in) -> std::string {
    const auto group = LaunchedGroup(test::LaunchAt(port, forked.rank(), kSize));
    if (!group) return group.error().message();
    return HearOfStop(**group, in,
                      "rank 1 has given no sign of life for 1.0 s; its process may be stopped");
  });
  ::unsetenv("LMDBIO_RANK_SILENCE_LIMIT_MS");
  REQUIRE(job.AwaitReady());
  job.Send(SIGSTOP, 1);
  for (int rank = 0; rank < kSize; ++rank) {
    if (rank != 1) CHECK(job.EndOf(rank) == "");
  }
  job.Send(SIGCONT, 1);
  CHECK(job.EndOf(1) == "");
}

TEST_CASE("A job that is stopped as a whole goes on", "[launcher]") {
  constexpr int kSize = 3;
  REQUIRE(::setenv("LMDBIO_RANK_SILENCE_LIMIT_MS", "500", 1) == 0);
  const uint16_t port = test::FreePorts(1);
  ForkedJob job(kSize, kSize);
  job.Start([&](Group& forked, ForkedJob& in) -> std::string {
    const auto group = LaunchedGroup(test::LaunchAt(port, forked.rank(), kSize));
    if (!group) return group.error().message();
    in.SayReady();
    while (in.SecondsSinceSignal() < 0) ::usleep(1000);
    ::usleep(200'000);
    const Status barrier = (*group)->Barrier();
    return barrier ? "" : barrier.error().message();
  });
  ::unsetenv("LMDBIO_RANK_SILENCE_LIMIT_MS");
  REQUIRE(job.AwaitReady());
  job.SendAll(SIGSTOP);
  ::usleep(2'000'000);
  job.SendAll(SIGCONT);
  job.Send(SIGCONT, 0);  // tells the ranks that it is over
  for (int rank = 0; rank < kSize; ++rank) CHECK(job.EndOf(rank) == "");
}

TEST_CASE("A wrong limit of silence is named", "[launcher]") {
  const std::string value = GENERATE("4s", "-1", "499", "3600001");
  REQUIRE(::setenv("LMDBIO_RANK_SILENCE_LIMIT_MS", value.c_str(), 1) == 0);
  const auto limit = ReadRankSilenceLimit();
  ::unsetenv("LMDBIO_RANK_SILENCE_LIMIT_MS");
  REQUIRE_FALSE(limit);
  CHECK(limit.error().code() == ErrorCode::kInvalidArgument);
  CHECK(limit.error().message() ==
        fmt::format("LMDBIO_RANK_SILENCE_LIMIT_MS is '{}'; expected 0, or 500 to 3600000", value));
  CHECK(*ReadRankSilenceLimit() == kRankSilenceLimit);
}

TEST_CASE("All ranks name a rank that is killed, and nothing is left", "[launcher]") {
  const int size = GENERATE(2, 7);
  const int victim = GENERATE_COPY(0, 1, size - 1);
  const Moment moment =
      GENERATE(Moment::kIdle, Moment::kInBarrier, Moment::kInPart, Moment::kInMemory);
  CAPTURE(size, victim, static_cast<int>(moment));
  const auto files = SharedFiles();
  const uint16_t port = test::FreePorts(1);
  ForkedJob job(size, size);
  job.Start([&](Group& forked, ForkedJob& in) -> std::string {
    const auto group = LaunchedGroup(test::LaunchAt(port, forked.rank(), size));
    if (!group) return group.error().message();
    return Survive(**group, in, victim, moment);
  });
  REQUIRE(job.AwaitReady());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  job.Send(SIGKILL, victim);
  for (int rank = 0; rank < size; ++rank) {
    CAPTURE(rank);
    CHECK(job.EndOf(rank) == (rank == victim ? "killed" : ""));
  }
  CHECK(SharedFiles() == files);
}

}  // namespace
}  // namespace lmdbio::ranks
