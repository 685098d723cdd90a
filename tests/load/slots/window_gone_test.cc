// Goal: a killed rank is an error for the others of its host in every wait; a rank that has left is
// not.
// Method: the ranks are processes that share memory.
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "lmdbio/load/slots/window.h"
#include "tests/load/slots/process_ranks.h"
#include "tests/ranks/pid_namespaces.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
namespace lmdbio::load {
namespace {

using test::JobRank;
using test::ProcessRanks;
using test::Verdict;

// A sleeper checks its peers every 0.2 s. The documentation promises an error within a second.
constexpr auto kNoticeLimit = std::chrono::seconds(2);

Verdict Names(const Error& error, int rank) {
  const std::string name = "rank " + std::to_string(JobRank(rank)) + " ";
  const bool is_right = error.code() == ErrorCode::kPeerFailed &&
                        error.message().find(name) != std::string::npos &&
                        error.message().find("ended unexpectedly") != std::string::npos;
  return is_right ? Verdict::kRight : Verdict::kWrong;
}

// The two waits for other ranks. Both wait for something that never comes.
ProcessRanks::Body InAwaitSlot(int gone) {
  return [gone](Window& window) {
    const auto head = window.AwaitSlot(0);
    return head ? Verdict::kWrong : Names(head.error(), gone);
  };
}
ProcessRanks::Body InAwaitSpace(int gone) {
  return [gone](Window& window) {
    const auto space = window.AwaitSpace(1);
    return space ? Verdict::kWrong : Names(space.error(), gone);
  };
}
Verdict Sleep(Window& /*window*/) {
  ::pause();
  return Verdict::kWrong;
}
Verdict LeaveAndEnd(Window& window) {
  window.Leave();
  return Verdict::kRight;
}

TEST_CASE("The waiting ranks find a killed rank", "[loader][window]") {
  const bool is_reader = GENERATE(false, true);
  const int killed = GENERATE(0, 1);
  CAPTURE(is_reader, killed);
  ProcessRanks ranks({.rank_count = 3, .reader_count = 3});
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start(rank, rank == killed ? Sleep
                      : is_reader    ? InAwaitSpace(killed)
                                     : InAwaitSlot(killed));
  }
  ranks.AwaitStart();
  ranks.Kill(killed);
  CHECK(ranks.EndOf(1 - killed, kNoticeLimit) == Verdict::kRight);
  CHECK(ranks.EndOf(2, kNoticeLimit) == Verdict::kRight);
}

// The search for ended ranks meets one first that had left before its end.
TEST_CASE("The waiting ranks find a killed rank behind one that has left", "[loader][window]") {
  const bool is_reader = GENERATE(false, true);
  CAPTURE(is_reader);
  ProcessRanks ranks({.rank_count = 3, .reader_count = 3});
  ranks.Start(0, LeaveAndEnd);
  ranks.Start(1, Sleep);
  ranks.Start(2, is_reader ? InAwaitSpace(1) : InAwaitSlot(1));
  CHECK(ranks.EndOf(0) == Verdict::kRight);
  ranks.AwaitStart();
  ranks.Kill(1);
  CHECK(ranks.EndOf(2, kNoticeLimit) == Verdict::kRight);
}

TEST_CASE("A rank that has left may end", "[loader][window]") {
  ProcessRanks ranks({.rank_count = 3, .reader_count = 1});
  ranks.Start(0, [](Window& window) {
    window.LetGo(1);
    const auto space = window.AwaitSpace(1);  // until rank 1 has left and rank 2 has let go
    if (!space || !*space) return Verdict::kWrong;
    ::usleep(500'000);  // the others check their peers meanwhile
    window.Announce(0, {7, 1, 0, 0});
    window.Leave();
    return window.AwaitAllLeft(std::chrono::seconds(10)) ? Verdict::kRight : Verdict::kWrong;
  });
  ranks.Start(1, LeaveAndEnd);
  ranks.Start(2, [](Window& window) {
    window.LetGo(1);
    const auto head = window.AwaitSlot(0);
    if (!head || head->first_batch != 7) return Verdict::kWrong;
    window.Leave();
    return Verdict::kRight;
  });
  ranks.AwaitStart();
  CHECK(ranks.EndOf(1) == Verdict::kRight);
  CHECK(ranks.EndOf(2) == Verdict::kRight);
  CHECK(ranks.EndOf(0) == Verdict::kRight);
}

TEST_CASE("No rank waits for a killed rank to leave", "[loader][window]") {
  ProcessRanks ranks({.rank_count = 3, .reader_count = 1});
  const auto wait = [](Window& window) {
    window.Leave();
    return window.AwaitAllLeft(std::chrono::seconds(60)) ? Verdict::kWrong : Verdict::kRight;
  };
  ranks.Start(0, LeaveAndEnd);
  ranks.Start(1, Sleep);
  ranks.Start(2, wait);
  ranks.AwaitStart();
  CHECK(ranks.EndOf(0) == Verdict::kRight);
  ranks.Kill(1);
  CHECK(ranks.EndOf(2, kNoticeLimit) == Verdict::kRight);
}

TEST_CASE("A window names the ranks whose end would not be noticed", "[loader][window]") {
  if (!test::HasPidNamespaces()) {
    WARN("skipped: no pid namespaces can be made here");
    return;
  }
  const WindowShape shape{.rank_count = 3, .reader_count = 1};
  const test::SharedBytes memory(Window::BytesNeeded(shape));
  const auto introduce = [&](int rank) {
    Window(memory.bytes(), shape, rank, JobRank(rank)).Introduce();
    return Verdict::kRight;
  };
  Window window(memory.bytes(), shape, 0, JobRank(0));
  window.Introduce();
  introduce(1);
  REQUIRE(test::InNewPidNamespace([&] { return introduce(2); }) == Verdict::kRight);
  CHECK(window.WatchPeers() == std::vector<int>{JobRank(2)});
  CHECK_FALSE(window.Failure());
}

TEST_CASE("The waiting ranks find a killed rank if a sandbox refuses pidfd_open",
          "[loader][window]") {
  const int error_number = GENERATE(EPERM, ENOSYS);
  CAPTURE(error_number);
  test::CheckInChild([&] {
    if (!test::RefuseSystemCall({SYS_pidfd_open, error_number})) return Verdict::kCannotTell;
    ProcessRanks ranks({.rank_count = 3, .reader_count = 1});
    ranks.Start(0, InAwaitSpace(1));
    ranks.Start(1, Sleep);
    ranks.Start(2, InAwaitSlot(1));
    ranks.AwaitStart();
    ranks.Kill(1);
    CHILD_CHECK(ranks.EndOf(0) == Verdict::kRight);
    CHILD_CHECK(ranks.EndOf(2) == Verdict::kRight);
    return Verdict::kRight;
  });
}

}  // namespace
}  // namespace lmdbio::load
