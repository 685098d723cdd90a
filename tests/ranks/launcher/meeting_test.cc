// Goal: ranks that cannot all meet get one clear error each, in time. It names the ranks that are
// missing, the one that has ended, or the port or number that is wrong.
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/launcher/hosted_meeting.h"
#include "lmdbio/ranks/launcher/launched_group.h"
#include "lmdbio/ranks/launcher/meeting_frame.h"
#include "lmdbio/ranks/net/link_socket.h"
#include "tests/ranks/forked_ranks.h"
#include "tests/ranks/launcher/launched_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"

namespace lmdbio::ranks {
namespace {

using namespace std::chrono_literals;
using test::CheckInChild;
using test::FreePorts;
using test::InThreads;
using test::LaunchAt;
using test::MeetingKind;
using test::RefuseSystemCall;
using test::Verdict;

constexpr auto kShort = 1500ms;

// The words that a rank hears from its meeting.
std::string Heard(const Result<std::unique_ptr<Group>>& group) {
  return group ? "a group" : group.error().message();
}

// The words that each of `ranks` hears, which are those of a job of `size` that come.
std::map<int, std::string> Come(MeetingKind kind, const std::vector<int>& ranks, int size,
                                std::chrono::milliseconds limit) {
  const uint16_t port = FreePorts(1);
  test::MemoryStore store;
  std::mutex mutex;
  std::map<int, std::string> heard;
  InThreads(static_cast<int>(ranks.size()), [&](int index) {
    const int rank = ranks[static_cast<size_t>(index)];
    const Launch launch = LaunchAt(port, rank, size, limit);
    std::string one = Heard(kind == MeetingKind::kHosted ? LaunchedGroup(launch)
                                                         : LaunchedGroup(launch, store.Handle()));
    const std::lock_guard lock(mutex);
    heard[rank] = std::move(one);
  });
  return heard;
}

void ExpectWords(const std::string& heard, const std::string& words) {
  CAPTURE(heard, words);
  CHECK(heard.find(words) != std::string::npos);
}

TEST_CASE("Ranks that do not come are named", "[launcher]") {
  const auto kind = GENERATE(MeetingKind::kHosted, MeetingKind::kStore);
  const std::string where = kind == MeetingKind::kHosted ? "at 127.0.0.1 port" : "in the store";
  for (const auto& [rank, heard] : Come(kind, {0, 1, 4}, 6, kShort)) {
    CAPTURE(rank);
    ExpectWords(heard, "ranks 2, 3 and 5 have not come to the meeting " + where);
    ExpectWords(heard, "within 1.5 s");
  }
  for (const auto& [rank, heard] : Come(kind, {0}, 2, kShort)) {
    CAPTURE(rank);
    ExpectWords(heard, "rank 1 has not come to the meeting " + where);
  }
}

TEST_CASE("A rank names the place at which rank 0 does not come", "[launcher]") {
  for (const auto& [rank, heard] : Come(MeetingKind::kHosted, {1, 2}, 3, kShort)) {
    ExpectWords(heard, "rank 0 of this job cannot be found at 127.0.0.1 port");
    ExpectWords(heard, "within 1.5 s (port");
  }
  for (const auto& [rank, heard] : Come(MeetingKind::kStore, {1, 2}, 3, kShort)) {
    ExpectWords(heard, "rank 0 has not come to the meeting in the store");
  }
  Launch launch = LaunchAt(1, 1, 2, kShort);
  launch.host = "no-such-host.invalid";
  ExpectWords(Heard(LaunchedGroup(launch)), "the host 'no-such-host.invalid': ");
}

TEST_CASE("Rank 0 may come last", "[launcher]") {
  const uint16_t port = FreePorts(1);
  std::vector<std::string> heard(3);
  InThreads(3, [&](int rank) {
    if (rank == 0) std::this_thread::sleep_for(700ms);
    heard[static_cast<size_t>(rank)] = Heard(LaunchedGroup(LaunchAt(port, rank, 3)));
  });
  CHECK(heard == std::vector<std::string>(3, "a group"));
}

TEST_CASE("Ranks that expect different numbers of ranks are refused", "[launcher]") {
  const auto kind = GENERATE(MeetingKind::kHosted, MeetingKind::kStore);
  const uint16_t port = FreePorts(1);
  test::MemoryStore store;
  std::vector<std::string> heard(3);
  InThreads(3, [&](int rank) {
    const Launch launch = LaunchAt(port, rank, rank == 2 ? 8 : 3, 20s);
    heard[static_cast<size_t>(rank)] =
        Heard(kind == MeetingKind::kHosted ? LaunchedGroup(launch)
                                           : LaunchedGroup(launch, store.Handle()));
  });
  ExpectWords(heard[0], "rank 2");
  ExpectWords(heard[0], "expects 8 ranks, rank 0 expects 3");
  ExpectWords(heard[1], "expects 8 ranks, rank 0 expects 3");
  ExpectWords(heard[2], "this rank expects 8 ranks, rank 0 expects 3");
}

TEST_CASE("A port that is taken is named", "[launcher]") {
  const uint16_t port = FreePorts(1);
  PeerAddress address = AnyAddressOfV4();
  address.port = port;
  const auto taken = ListenAtPort(address);
  REQUIRE(taken);
  const auto group = LaunchedGroup(LaunchAt(port, 0, 2, kShort));
  REQUIRE_FALSE(group);
  CHECK(group.error().code() == ErrorCode::kIo);
  CHECK(group.error().error_number() == EADDRINUSE);
  ExpectWords(group.error().message(),
              fmt::format("rank 0 cannot listen at port {} (bind: Address already in use)", port));
  // The listener takes connections, and says nothing.
  ExpectWords(Heard(LaunchedGroup(LaunchAt(port, 1, 2, kShort))),
              fmt::format("no answer from port {}", port));
}

TEST_CASE("Ranks find the first free port behind those that are taken", "[launcher]") {
  const uint16_t port = FreePorts(4);
  PeerAddress address = AnyAddressOfV4();
  address.port = port;
  const auto taken = ListenAtPort(address);
  REQUIRE(taken);
  std::vector<std::string> heard(3);
  InThreads(3, [&](int rank) {
    Launch launch = LaunchAt(port, rank, 3);
    launch.port_count = 4;
    heard[static_cast<size_t>(rank)] = Heard(LaunchedGroup(launch));
  });
  CHECK(heard == std::vector<std::string>(3, "a group"));
}

TEST_CASE("Two jobs with one port do not mix", "[launcher]") {
  const uint16_t port = FreePorts(2);
  const auto port_count = static_cast<uint16_t>(GENERATE(1, 2));
  CAPTURE(port_count);
  const auto launch_of = [&](int job, int rank) {
    Launch launch = LaunchAt(port, rank, 2, 10s);
    launch.job = static_cast<uint64_t>(job);
    launch.port_count = port_count;
    return launch;
  };
  // The first job waits for its rank 1, while the second job meets.
  std::string first[2];
  std::string second[2];
  std::thread waits([&] { first[0] = Heard(LaunchedGroup(launch_of(1, 0))); });
  std::this_thread::sleep_for(1s);  // until it listens
  InThreads(2, [&](int rank) { second[rank] = Heard(LaunchedGroup(launch_of(2, rank))); });
  first[1] = Heard(LaunchedGroup(launch_of(1, 1)));
  waits.join();
  CHECK(first[0] == "a group");
  CHECK(first[1] == "a group");
  if (port_count == 2) {
    CHECK(second[0] == "a group");
    CHECK(second[1] == "a group");
  } else {
    ExpectWords(second[0], "another job or program has it");
    ExpectWords(second[1], fmt::format("another job meets at port {}", port));
  }
}

// Another port would not help.
TEST_CASE("A host that refuses sockets is not taken for a port that is taken", "[launcher]") {
  const uint16_t port = FreePorts(1);
  CheckInChild([&] {
    if (!RefuseSystemCall({SYS_socket, EPERM})) return Verdict::kCannotTell;
    CHILD_CHECK(
        Heard(LaunchedGroup(LaunchAt(port, 0, 2))) ==
        fmt::format("rank 0 cannot listen at port {} (socket: Operation not permitted)", port));
    return Verdict::kRight;
  });
}

TEST_CASE("Two processes with one number are refused", "[launcher]") {
  const uint16_t port = FreePorts(1);
  std::string heard[4];
  InThreads(4, [&](int index) {
    // Rank 1 comes twice before rank 2 comes.
    if (index == 3) std::this_thread::sleep_for(2s);
    const int rank = std::vector<int>{0, 1, 1, 2}[static_cast<size_t>(index)];
    heard[index] = Heard(LaunchedGroup(LaunchAt(port, rank, 3)));
  });
  if (heard[1] != "a group") std::swap(heard[1], heard[2]);
  CHECK(heard[0] == "a group");
  CHECK(heard[1] == "a group");
  ExpectWords(heard[2], "rank 1 has come to the meeting at 127.0.0.1 port");
  CHECK(heard[3] == "a group");
}

TEST_CASE("Ranks at different meetings are told apart", "[launcher]") {
  const uint16_t port = FreePorts(1);
  // Rank 1 is one meeting ahead. It waits until rank 0 comes to it.
  std::string heard[2];
  std::thread ahead([&] {
    Launch launch = LaunchAt(port, 1, 2);
    launch.meeting = 5;
    heard[1] = Heard(LaunchedGroup(launch));
  });
  Launch launch = LaunchAt(port, 0, 2, kShort);
  launch.meeting = 4;
  ExpectWords(Heard(LaunchedGroup(launch)), "rank 1 has not come to the meeting");
  launch.meeting = 5;
  launch.limit = 30s;
  heard[0] = Heard(LaunchedGroup(launch));
  ahead.join();
  CHECK(heard[0] == "a group");
  CHECK(heard[1] == "a group");
  // A rank that is behind never meets rank 0.
  std::thread waits([&heard, launch] { heard[0] = Heard(LaunchedGroup(launch)); });
  launch.rank = 1;
  Launch behind = launch;
  behind.meeting = 3;
  ExpectWords(Heard(LaunchedGroup(behind)),
              "rank 0 is at its meeting number 5, this rank at number 3: ranks must make the same "
              "calls");
  CHECK(Heard(LaunchedGroup(launch)) == "a group");
  waits.join();
}

// Comes to the meeting of rank 0, and is welcomed. When the connection is closed, the rank has died
// for the others.
MeetingConnection ComeAs(int rank, int size, uint16_t port) {
  PeerAddress address = LoopbackAddresses().front();
  address.port = port;
  const GuestIntroduction said{.rank = rank, .size = size};
  while (true) {
    std::this_thread::sleep_for(10ms);
    auto socket = BeginConnect(address);
    if (!socket) continue;
    MeetingConnection connection(std::move(*socket));
    connection.Send(MeetingWord::kHello, 0, std::as_bytes(std::span(&said, 1)));
    while (!connection.is_broken()) {
      connection.Flush();
      const auto answer = connection.Receive();
      if (answer && answer->head.word == MeetingWord::kComeIn) return connection;
      std::this_thread::sleep_for(1ms);
    }
  }
}

TEST_CASE("A rank that ends during the meeting is named", "[launcher]") {
  const uint16_t port = FreePorts(1);
  std::string heard[2];
  InThreads(3, [&](int rank) {
    if (rank < 2) return void(heard[rank] = Heard(LaunchedGroup(LaunchAt(port, rank, 4))));
    MeetingConnection connection = ComeAs(rank, 4, port);
    connection.Close();
  });
  for (const std::string& one : heard) {
    CHECK(one == "rank 2 has ended during the meeting of the ranks");
  }
}

TEST_CASE("A meeting whose host is killed fails on all ranks", "[launcher]") {
  const uint16_t port = FreePorts(1);
  test::ForkedJob job(1, 1);
  job.Start([&](Group&, test::ForkedJob&) -> std::string {
    return Heard(LaunchedGroup(LaunchAt(port, 0, 3)));
  });
  std::string heard;
  std::thread guest([&] { heard = Heard(LaunchedGroup(LaunchAt(port, 1, 3))); });
  std::this_thread::sleep_for(3s);  // until the guest has come
  job.Send(SIGKILL, 0);
  guest.join();
  CHECK(heard == fmt::format("rank 0 has ended during the meeting of the ranks at 127.0.0.1 port "
                             "{}",
                             port));
}

TEST_CASE("A store that fails is named, on all ranks that can still read it", "[launcher]") {
  test::MemoryStore store;
  std::vector<std::string> heard(3);
  InThreads(3, [&](int rank) {
    KeyValueStore mine = store.Handle();
    if (rank == 1) {
      mine.get = [](const std::string& key) -> Result<std::optional<std::vector<std::byte>>> {
        return Fail(ErrorCode::kIo, "get " + key + ": connection reset by peer");
      };
    }
    heard[static_cast<size_t>(rank)] = Heard(LaunchedGroup(LaunchAt(0, rank, 3), mine));
  });
  CHECK(heard[1] == "get lmdbio/0/job: connection reset by peer");
  CHECK(heard[0] == "rank 1: get lmdbio/0/job: connection reset by peer");
  CHECK(heard[2] == "rank 1: get lmdbio/0/job: connection reset by peer");
}

TEST_CASE("Strangers at the meeting point do not keep the ranks apart", "[launcher]") {
  const uint16_t port = FreePorts(1);
  std::vector<UniqueFd> strangers;
  std::vector<std::string> heard(3);
  InThreads(4, [&](int index) {
    if (index < 3) {
      if (index > 0) std::this_thread::sleep_for(500ms);
      heard[static_cast<size_t>(index)] = Heard(LaunchedGroup(LaunchAt(port, index, 3)));
      return;
    }
    PeerAddress address = LoopbackAddresses().front();
    address.port = port;
    const std::string rubbish(4000, 'x');
    for (int i = 0; i < 300; ++i) {
      auto socket = BeginConnect(address);
      if (!socket) continue;
      std::this_thread::sleep_for(1ms);
      // A third says nothing, a third half a head, a third rubbish.
      const size_t count = i % 3 == 0 ? 0 : i % 3 == 1 ? 5 : rubbish.size();
      if (count > 0) static_cast<void>(::send(socket->get(), rubbish.data(), count, MSG_NOSIGNAL));
      strangers.push_back(std::move(*socket));
    }
  });
  CHECK(heard == std::vector<std::string>(3, "a group"));
}

}  // namespace
}  // namespace lmdbio::ranks
