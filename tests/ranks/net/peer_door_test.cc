// Goal: ranks listen at the addresses that their peers know and nowhere else. Strangers are not
// admitted, and do not keep a peer out. A process without descriptors reports that.
// Method: a door with a simulated clock, and rendezvous of ranks played by threads. Another process
// connects uninvited as soon as all ranks listen.
#include "lmdbio/ranks/net/peer_door.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/net/link_socket.h"
#include "lmdbio/ranks/net/peer_links.h"
#include "tests/ranks/net/all_pairs.h"
#include "tests/support/catch.h"
#include "tests/support/in_child.h"

namespace lmdbio::ranks {
namespace {

using test::AllPairs;
using test::InChild;
using test::RefusedCall;
using test::RefuseSystemCall;
using test::Verdict;

constexpr JobKey kKey{std::byte{7}, std::byte{1}};
constexpr size_t kCrowd = 300;

std::vector<int> OpenDescriptors() {
  std::vector<int> found;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    found.push_back(std::stoi(one.path().filename().string()));
  }
  return found;
}

bool LimitDescriptors(size_t more) {
  const rlim_t count = OpenDescriptors().size() + more;
  const rlimit limit{count, count};
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::vector<PeerAddress> Loopback() {
  auto addresses = OwnAddresses();
  REQUIRE(addresses);
  std::erase_if(*addresses, [](const PeerAddress& one) { return !IsLoopback(one); });
  addresses->resize(1);
  return std::move(*addresses);
}

// The addresses at which the sockets of this process listen.
std::vector<sockaddr_in6> ListeningAt() {
  std::vector<sockaddr_in6> found;
  for (const int fd : OpenDescriptors()) {
    int listens = 0;
    socklen_t size = sizeof listens;
    sockaddr_in6 address{};
    socklen_t address_size = sizeof address;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &address_size) != 0) continue;
    if (address.sin6_family == AF_INET || address.sin6_family == AF_INET6) found.push_back(address);
  }
  return found;
}

in_addr_t V4Of(const sockaddr_in6& address) {
  sockaddr_in v4{};
  std::memcpy(&v4, &address, sizeof v4);
  return ntohl(v4.sin_addr.s_addr);
}

bool IsEverywhere(const sockaddr_in6& address) {
  return address.sin6_family == AF_INET ? V4Of(address) == INADDR_ANY
                                        : IN6_IS_ADDR_UNSPECIFIED(&address.sin6_addr) != 0;
}

bool IsAtLoopback(const sockaddr_in6& address) {
  return address.sin6_family == AF_INET ? V4Of(address) >> 24 == 127
                                        : IN6_IS_ADDR_LOOPBACK(&address.sin6_addr) != 0;
}

// Connects to an address; returns an empty socket after a failure.
UniqueFd Connected(const sockaddr_in6& address) {
  UniqueFd socket(::socket(address.sin6_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* const there = reinterpret_cast<const sockaddr*>(&address);
  return socket && ::connect(socket.get(), there, sizeof address) == 0 ? std::move(socket)
                                                                       : UniqueFd();
}

// Connects to a door.
UniqueFd Connected(const PeerDoor& door) {
  pollfd connects{};
  auto socket = BeginConnect(door.reachability().addresses[0]);
  if (!socket) return {};
  connects = {socket->get(), POLLOUT, 0};
  ::poll(&connects, 1, -1);
  return std::move(*socket);
}

void Say(const UniqueFd& socket, const Introduction& said, size_t first = 0,
         size_t count = sizeof(Introduction)) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&said);
  REQUIRE(::send(socket.get(), bytes + first, count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
}

TEST_CASE("A door lets in a visitor with the job's key and no other", "[comm][peer_door]") {
  auto door = PeerDoor::Open(Loopback());
  REQUIRE(door);
  const auto start = PeerDoor::Clock::now();
  const UniqueFd peer = Connected(*door);
  const UniqueFd stranger = Connected(*door);
  const UniqueFd slow_peer = Connected(*door);
  JobKey wrong = kKey;
  wrong.back() = std::byte{1};
  Say(peer, {kKey, 3, 5});
  Say(stranger, {wrong, 3, 5});
  Say(slow_peer, {kKey, 4, 5}, 0, 10);
  auto visitors = door->Serve(kKey, start);
  REQUIRE(visitors.size() == 1);
  CHECK((visitors[0].from == 3 && visitors[0].to == 5));
  CHECK(visitors[0].socket);
  CHECK(door->stranger_count() == 1);
  Say(slow_peer, {kKey, 4, 5}, 10, sizeof(Introduction) - 10);
  visitors = door->Serve(kKey, start);
  REQUIRE(visitors.size() == 1);
  CHECK(visitors[0].from == 4);
  CHECK(door->stranger_count() == 0);
}

TEST_CASE("A stranger has a limited time, also if it sends bytes", "[comm][peer_door]") {
  auto door = PeerDoor::Open(Loopback());
  REQUIRE(door);
  const auto start = PeerDoor::Clock::now();
  const UniqueFd silent = Connected(*door);
  const UniqueFd dripping = Connected(*door);
  CHECK(door->Serve(kKey, start).empty());
  CHECK(door->stranger_count() == 2);
  CHECK(door->Deadline() == start + PeerDoor::kIntroductionLimit);
  const auto just_before = start + PeerDoor::kIntroductionLimit - std::chrono::milliseconds(1);
  Say(dripping, {kKey, 1, 2}, 0, 1);
  CHECK(door->Serve(kKey, just_before).empty());
  CHECK(door->stranger_count() == 2);
  Say(dripping, {kKey, 1, 2}, 1, 1);
  CHECK(door->Serve(kKey, start + PeerDoor::kIntroductionLimit).empty());
  CHECK(door->stranger_count() == 0);
}

TEST_CASE("Strangers make room for each other, and for a peer behind them", "[comm][peer_door]") {
  auto door = PeerDoor::Open(Loopback());
  REQUIRE(door);
  std::vector<UniqueFd> crowd;
  for (size_t i = 0; i < kCrowd; ++i) crowd.push_back(Connected(*door));
  const UniqueFd peer = Connected(*door);
  Say(peer, {kKey, 1, 0});
  const auto now = PeerDoor::Clock::now();
  std::vector<PeerDoor::Visitor> visitors;
  for (int turn = 0; turn < 10 && visitors.empty(); ++turn) {
    visitors = door->Serve(kKey, now);
    CHECK(door->stranger_count() <= PeerDoor::kStrangersMax);
  }
  CHECK(visitors.size() == 1);
}

// The kernel refuses descriptors to one thread only.
Verdict RestsAndGoesOn() {
  auto door = PeerDoor::Open(Loopback());
  if (!door) return Verdict::kWrong;
  const UniqueFd peer = Connected(*door);
  Say(peer, {kKey, 1, 0});
  const auto now = PeerDoor::Clock::now();
  bool can_refuse = false;
  bool is_let_in = true;
  std::thread([&] {
    can_refuse = RefuseSystemCall({.number = SYS_accept4, .error_number = EMFILE});
    is_let_in = !door->Serve(kKey, now).empty();
  }).join();
  if (!can_refuse) return Verdict::kCannotTell;
  std::vector<pollfd> polled;  // without the rest, poll would return at once
  door->AddTo(polled, now);
  const bool rests = polled.empty() && door->Deadline() == now + PeerDoor::kRest;
  const bool says_why =
      door->trouble().find("accept: Too many open files (the limit of this process is ") == 0;
  const bool makes_no_attempt = door->Serve(kKey, now).empty();
  const auto later = door->Serve(kKey, now + PeerDoor::kRest);
  door->AddTo(polled, now + PeerDoor::kRest);
  const bool goes_on = later.size() == 1 && polled.size() == 1 && door->trouble().empty();
  return !is_let_in && rests && says_why && makes_no_attempt && goes_on ? Verdict::kRight
                                                                        : Verdict::kWrong;
}

TEST_CASE("A door rests while it has no descriptors to accept with", "[comm][peer_door]") {
  const Verdict verdict = InChild(RestsAndGoesOn);
  if (verdict == Verdict::kCannotTell) WARN("skipped: no call can be refused here");
  CHECK(verdict != Verdict::kWrong);
}

TEST_CASE("A door without an address says so", "[comm][peer_door]") {
  const auto nowhere = PeerDoor::Open({});
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().code() == ErrorCode::kIo);
  // 192.0.2.0/24 is reserved for documentation, so no host has an address in it.
  const PeerAddress other{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, 1}, 128};
  const auto elsewhere = PeerDoor::Open(std::span(&other, 1));
  REQUIRE_FALSE(elsewhere);
  CHECK(elsewhere.error().message() ==
        "listening at 192.0.2.1: bind: Cannot assign requested address");
  std::vector<PeerAddress> both = Loopback();
  both.push_back(other);
  const auto one = PeerDoor::Open(both);
  REQUIRE(one);
  CHECK(one->reachability().address_count == 1);
}

// A group that calls the test when all ranks listen and none has connected yet.
class InterruptedGroup final : public Group {
 public:
  InterruptedGroup(Group& group, std::function<void()> interrupt)
      : group_(group), interrupt_(std::move(interrupt)) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& host_name() const override { return group_.host_name(); }
  Status Barrier() override { return group_.Barrier(); }
  Status Broadcast(int root, MutableBytes bytes) override { return group_.Broadcast(root, bytes); }
  Result<std::vector<std::byte>> AllGather(Bytes mine) override {
    auto all = group_.AllGather(mine);
    if (mine.size() != sizeof(Reachability)) return all;
    if (group_.rank() == 0) interrupt_();
    if (!group_.Barrier()) std::terminate();
    return all;
  }
  Result<std::unique_ptr<Group>> SplitByHost() override { return group_.SplitByHost(); }
  Result<std::unique_ptr<Group>> Split(int color) override { return group_.Split(color); }
  Result<std::unique_ptr<SharedMemory>> AllocateShared(uint64_t size_bytes) override {
    return group_.AllocateShared(size_bytes);
  }

 private:
  Group& group_;
  std::function<void()> interrupt_;
};

// Opens all links and passes a byte round the ranks. Returns the error of each rank.
std::vector<std::string> MeetAndTalk(ThreadRanks ranks, const std::function<void()>& interrupt) {
  std::vector<std::string> wrong(static_cast<size_t>(ranks.rank_count));
  RunAsThreads(ranks, [&](Group& group) {
    std::string& mine = wrong[static_cast<size_t>(group.rank())];
    InterruptedGroup interrupted(group, interrupt);
    const auto links = PeerLinks::Open(interrupted, AllPairs(group));
    if (!links) return void(mine = links.error().message());
    const std::byte said{static_cast<unsigned char>(group.rank())};
    if (!(*links)->Send(RankBehind(group), std::span(&said, 1))) mine = "Send failed";
    const auto heard = (*links)->Receive(RankBefore(group));
    if (!heard || !*heard || std::to_integer<int>((*heard)->at(0)) != RankBefore(group)) {
      mine = "another message";
    }
    if (!group.Barrier()) mine = "Barrier failed";
  });
  return wrong;
}

TEST_CASE("Ranks listen at the loopback alone unless there are several hosts",
          "[comm][peer_door]") {
  const int ranks_per_host = GENERATE(4, 2);
  CAPTURE(ranks_per_host);
  std::vector<sockaddr_in6> found;
  const auto wrong = MeetAndTalk({4, ranks_per_host}, [&] { found = ListeningAt(); });
  CHECK(wrong == std::vector<std::string>(4));
  CHECK(found.size() >= 4);
  CHECK(std::none_of(found.begin(), found.end(), IsEverywhere));
  if (ranks_per_host == 4) CHECK(std::all_of(found.begin(), found.end(), IsAtLoopback));
}

TEST_CASE("Ranks to which no rank connects do not listen", "[comm][peer_door]") {
  std::vector<std::string> wrong(3);
  size_t listener_count = 0;
  RunAsThreads({3}, [&](Group& group) {
    LinkSpec plan;
    if (group.rank() == 0) plan.receives_from = {1, 2};
    if (group.rank() > 0) plan.sends_to = {0};
    InterruptedGroup interrupted(group, [&] { listener_count = ListeningAt().size(); });
    const auto links = PeerLinks::Open(interrupted, plan);
    if (!links) wrong[static_cast<size_t>(group.rank())] = links.error().message();
    if (!group.Barrier()) std::terminate();
  });
  CHECK(wrong == std::vector<std::string>(3));
  CHECK(listener_count >= 1);
  CHECK(listener_count <= 2);  // rank 0, by IPv4 and by IPv6
}

// A process that connects kCrowd times to each given address, and sends nothing.
class Crowd {
 public:
  Crowd() {
    std::array<int, 2> asking{};
    std::array<int, 2> answering{};
    if (::pipe2(asking.data(), O_CLOEXEC) != 0 || ::pipe2(answering.data(), O_CLOEXEC) != 0) return;
    ask_ = UniqueFd(asking[1]);
    answer_ = UniqueFd(answering[0]);
    UniqueFd asked(asking[0]);
    UniqueFd answers(answering[1]);
    child_ = ::fork();
    if (child_ == 0) {
      ask_ = UniqueFd();
      BeThere(asked, answers);
      ::_exit(0);
    }
  }
  ~Crowd() {
    ask_ = UniqueFd();  // the end of file ends the process
    if (child_ > 0) ::waitpid(child_, nullptr, 0);
  }
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Returns when all connections stand.
  bool GoTo(const sockaddr_in6& address) const {
    char is_there = 0;
    return ::write(ask_.get(), &address, sizeof address) == sizeof address &&
           ::read(answer_.get(), &is_there, 1) == 1 && is_there == 1;
  }

 private:
  static void BeThere(const UniqueFd& asked, const UniqueFd& answers) {
    std::vector<UniqueFd> sockets;
    sockaddr_in6 address{};
    while (::read(asked.get(), &address, sizeof address) == sizeof address) {
      char are_there = 1;
      for (size_t i = 0; i < kCrowd; ++i) {
        sockets.push_back(Connected(address));
        if (!sockets.back()) are_there = 0;
      }
      if (::write(answers.get(), &are_there, 1) != 1) return;
    }
  }

  UniqueFd ask_;
  UniqueFd answer_;
  pid_t child_ = -1;
};

TEST_CASE("Ranks meet although hundreds of strangers were there first", "[comm][peer_door]") {
  CHECK(InChild([] {
          constexpr int kRanks = 3;
          const Crowd crowd;
          // The limit is lower than the number of strangers.
          if (!LimitDescriptors(kRanks * PeerDoor::kStrangersMax + 100)) return Verdict::kWrong;
          bool are_there = true;
          const auto wrong = MeetAndTalk({kRanks}, [&] {
            for (const sockaddr_in6& one : ListeningAt()) {
              are_there = crowd.GoTo(one) && are_there;
            }
          });
          return are_there && wrong == std::vector<std::string>(kRanks) ? Verdict::kRight
                                                                        : Verdict::kWrong;
        }) == Verdict::kRight);
}

TEST_CASE("Too few descriptors for the links are an error of all ranks that names the limit",
          "[comm][peer_door]") {
  CHECK(InChild([] {
          if (!LimitDescriptors(12)) return Verdict::kWrong;
          std::vector<std::string> wrong(4);
          bool has_begun = false;
          RunAsThreads({4}, [&](Group& group) {
            InterruptedGroup interrupted(group, [&] { has_begun = true; });
            const auto links = PeerLinks::Open(interrupted, AllPairs(group));
            if (!links) wrong[static_cast<size_t>(group.rank())] = links.error().message();
          });
          const bool all_hear = std::all_of(wrong.begin(), wrong.end(), [](const std::string& one) {
            return one.find("Too many open files") != std::string::npos &&
                   one.find("raise it with ulimit -n") != std::string::npos;
          });
          return all_hear && !has_begun ? Verdict::kRight : Verdict::kWrong;
        }) == Verdict::kRight);
}

TEST_CASE("A call of one rank that has no descriptors is an error of all ranks, with the limit",
          "[comm][peer_door]") {
  struct Refused {
    const char* call;
    RefusedCall how;
  };
  const auto [call, how] = GENERATE(
      // Only AF_NETLINK has this bit: the socket that asks for the addresses of the interfaces.
      Refused{"getifaddrs", {SYS_socket, EMFILE, 0, AF_NETLINK}},
      Refused{"eventfd", {SYS_eventfd2, EMFILE}});
  CAPTURE(call);
  const Verdict verdict = InChild([&] {
    bool can_refuse = false;
    std::vector<std::string> wrong(4);
    RunAsThreads({4}, [&](Group& group) {
      if (group.rank() == 2) can_refuse = RefuseSystemCall(how);
      const auto links = PeerLinks::Open(group, AllPairs(group));
      if (!links) wrong[static_cast<size_t>(group.rank())] = links.error().message();
    });
    if (!can_refuse) return Verdict::kCannotTell;
    const std::string expected = fmt::format("{}: Too many open files (the limit of ", call);
    const bool all_hear = std::all_of(wrong.begin(), wrong.end(), [&](const std::string& one) {
      return one.find(expected) != std::string::npos;
    });
    return all_hear ? Verdict::kRight : Verdict::kWrong;
  });
  if (verdict == Verdict::kCannotTell) WARN("skipped: no call can be refused here");
  CHECK(verdict != Verdict::kWrong);
}

}  // namespace
}  // namespace lmdbio::ranks
