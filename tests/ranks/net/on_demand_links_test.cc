// Goal: a link opens when a rank first needs it and at no other time, also to a rank that does not
// wait; a rank whose door is closed is an error within a short time.
// Method: ranks played by threads, over real sockets of this host.
#include "lmdbio/ranks/net/on_demand_links.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/ranks/net/link_socket.h"
#include "tests/support/catch.h"

namespace lmdbio::ranks {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Direction = OnDemandLinks::LinkDirection;
using OpenedLink = OnDemandLinks::OpenedLink;

// The next links; none if none is opened within the limit.
std::vector<OpenedLink> Await(OnDemandLinks& links, std::chrono::milliseconds limit) {
  pollfd polled{links.event(), POLLIN, 0};
  ::poll(&polled, 1, static_cast<int>(limit.count()));
  return links.TakeOpened();
}

int OptionOf(const UniqueFd& socket, int level, int option) {
  int value = -1;
  socklen_t size = sizeof value;
  return ::getsockopt(socket.get(), level, option, &value, &size) == 0 ? value : -1;
}

bool HasLinkOptions(const UniqueFd& socket) {
  return OptionOf(socket, IPPROTO_TCP, TCP_NODELAY) == 1 &&
         OptionOf(socket, SOL_SOCKET, SO_KEEPALIVE) == 1 &&
         OptionOf(socket, IPPROTO_TCP, TCP_KEEPIDLE) == kKeepaliveIdle.count() &&
         OptionOf(socket, IPPROTO_TCP, TCP_KEEPINTVL) == kKeepaliveInterval.count() &&
         OptionOf(socket, IPPROTO_TCP, TCP_KEEPCNT) == kKeepaliveProbes;
}

// Runs `body` on every rank; returns what has gone wrong on each.
using Body = std::function<std::string(Group& group, OnDemandLinks& links)>;
std::vector<std::string> OnAll(ThreadRanks ranks, const Body& body) {
  std::vector<std::string> wrong(static_cast<size_t>(ranks.rank_count));
  RunAsThreads(ranks, [&](Group& group) {
    auto links = OnDemandLinks::Create(group, 2);
    std::string& mine = wrong[static_cast<size_t>(group.rank())];
    mine = links ? body(group, **links) : links.error().message();
    static_cast<void>(group.Barrier());
  });
  return wrong;
}

TEST_CASE("A link on demand stands at both ends, and no other link is opened",
          "[comm][on_demand_links]") {
  constexpr int kFrom = 1;
  constexpr int kTo = 3;
  const auto wrong = OnAll({4, 2}, [](Group& group, OnDemandLinks& links) -> std::string {
    if (group.rank() == kFrom) links.Open(kTo);
    const bool is_end = group.rank() == kFrom || group.rank() == kTo;
    const auto opened = Await(links, is_end ? 10s : 300ms);
    if (!is_end) return opened.empty() ? "" : "a link that no rank requested";
    if (opened.size() != 1 || !opened[0].socket) return "no link";
    const bool is_from = group.rank() == kFrom;
    const OpenedLink& link = opened[0];
    if (link.rank != (is_from ? kTo : kFrom)) return "a link to another rank";
    if (link.direction != (is_from ? Direction::kOutgoing : Direction::kIncoming)) {
      return "a link in the other direction";
    }
    if (!HasLinkOptions(link.socket)) return "a socket without the options of a link";
    char letter = 'x';
    if (is_from) return ::send(link.socket.get(), &letter, 1, 0) == 1 ? "" : "send failed";
    pollfd polled{link.socket.get(), POLLIN, 0};
    ::poll(&polled, 1, 10'000);
    return ::recv(link.socket.get(), &letter, 1, 0) == 1 && letter == 'x' ? "" : "recv failed";
  });
  CHECK(wrong == std::vector<std::string>(4));
}

TEST_CASE("A link opens although the other rank makes no call", "[comm][on_demand_links]") {
  const auto wrong = OnAll({2}, [](Group& group, OnDemandLinks& links) -> std::string {
    std::string mine;
    if (group.rank() == 0) {
      links.Open(1);
      const auto opened = Await(links, 10s);
      if (opened.size() != 1 || !opened[0].socket) mine = "no link";
    }
    static_cast<void>(group.Barrier());  // rank 1 is here all the time
    return mine;
  });
  CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("Ranks open links to each other at the same time", "[comm][on_demand_links]") {
  constexpr size_t kRankCount = 8;
  const auto wrong = OnAll({kRankCount, 1}, [](Group& group, OnDemandLinks& links) -> std::string {
    for (int to = 0; to < group.size(); ++to) {
      if (to != group.rank()) links.Open(to);
    }
    std::vector<OpenedLink> all;
    const auto limit = Clock::now() + 20s;
    while (all.size() < 2 * (kRankCount - 1) && Clock::now() < limit) {
      for (OpenedLink& link : Await(links, 100ms)) all.push_back(std::move(link));
    }
    for (const OpenedLink& link : all) {
      if (!link.socket) return link.failure;
    }
    return all.size() == 2 * (kRankCount - 1) ? "" : "another number of links";
  });
  CHECK(wrong == std::vector<std::string>(kRankCount));
}

TEST_CASE("A link to a rank with a closed door fails soon, and names the addresses",
          "[comm][on_demand_links]") {
  const auto wrong = OnAll({2}, [](Group& group, OnDemandLinks& links) -> std::string {
    if (group.rank() == 1) links.Close();
    // The thread of rank 1 closes the door a moment later.
    std::this_thread::sleep_for(200ms);
    static_cast<void>(group.Barrier());
    if (group.rank() == 1) return "";
    const auto begin = Clock::now();
    links.Open(1);
    const auto opened = Await(links, 20s);
    if (Clock::now() - begin > 10s) return "too late";
    if (opened.size() != 1 || opened[0].socket) return "a link";
    const std::string& failure = opened[0].failure;
    return failure.find("within 1 s (connect: Connection refused), tried ") == 0 &&
                   failure.find(" port ") != std::string::npos
               ? ""
               : failure;
  });
  CHECK(wrong == std::vector<std::string>(2));
}

}  // namespace
}  // namespace lmdbio::ranks
