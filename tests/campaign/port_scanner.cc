#include "tests/campaign/port_scanner.h"

#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/launcher/meeting_frame.h"
#include "lmdbio/ranks/net/peer_door.h"
#include "tests/support/random.h"

namespace lmdbio::test {
namespace {

constexpr size_t kConnectionsPerLook = 200;
constexpr auto kPause = std::chrono::microseconds(200);  // when nobody listens

// The ports at which anybody of this network listens (proc(5)).
std::vector<uint16_t> ListeningPorts() {
  std::vector<uint16_t> ports;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state;
    words >> number >> local >> remote >> state;
    if (state != "0A") continue;
    const size_t colon = local.find(':');
    ports.push_back(static_cast<uint16_t>(std::stoul(local.substr(colon + 1), nullptr, 16)));
  }
  return ports;
}

UniqueFd ConnectTo(uint16_t port) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (socket) {
    static_cast<void>(
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
  }
  return socket;
}

template <typename T>
std::string TextOf(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Words that a stranger may say: none, the begin of right ones, right ones with a wrong key or job,
// a head that claims much, rubbish.
std::vector<std::string> StrangeWords() {
  ranks::Introduction wrong_key;
  wrong_key.from = 1;
  ranks::MeetingHead hello;
  hello.word = ranks::MeetingWord::kHello;
  hello.bytes = sizeof(ranks::GuestIntroduction);
  ranks::MeetingHead large = hello;
  large.bytes = ranks::MeetingConnection::kBodyBytesMax;
  ranks::MeetingHead huge = hello;
  huge.bytes = UINT32_MAX;
  ranks::GuestIntroduction other_job;
  other_job.job = 1;  // those of tests have 0
  return {"",
          TextOf(wrong_key).substr(0, 5),
          TextOf(wrong_key),
          TextOf(hello).substr(0, 11),
          TextOf(hello) + TextOf(other_job),
          TextOf(large) + std::string(1000, '\0'),
          TextOf(huge) + std::string(4000, 'x'),
          "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
          std::string(4000, 'x')};
}

}  // namespace

struct PortScanner::ScanCount {
  std::atomic<uint64_t> connection_count{0};
};

bool TakeOwnNetwork() {
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  return socket && ::ioctl(socket.get(), SIOCSIFFLAGS, &loopback) == 0;
}

PortScanner::PortScanner(uint64_t seed, uint64_t connections_max)
    : memory_(sizeof(ScanCount)), board_(*new (memory_.bytes().data()) ScanCount) {
  process_ = ::fork();
  if (process_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Run(seed, connections_max);
  while (true) ::pause();
}

PortScanner::~PortScanner() {
  if (process_ < 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

uint64_t PortScanner::connection_count() const { return board_.connection_count.load(); }

void PortScanner::Run(uint64_t seed, uint64_t connections_max) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
  Random random(seed);
  const std::vector<std::string> words = StrangeWords();
  std::vector<UniqueFd> kept;
  while (board_.connection_count.load() < connections_max) {
    const std::vector<uint16_t> ports = ListeningPorts();
    if (ports.empty()) std::this_thread::sleep_for(kPause);
    // Not for long, so that a port which has just been opened gets its share.
    for (size_t i = 0; i < kConnectionsPerLook * ports.size(); ++i) {
      UniqueFd socket = ConnectTo(ports[i % ports.size()]);
      if (!socket) return;
      const std::string& one = words[random.Below(words.size())];
      static_cast<void>(::send(socket.get(), one.data(), one.size(), MSG_NOSIGNAL));
      board_.connection_count.fetch_add(1);
      if (random.Below(8) != 0) kept.push_back(std::move(socket));
    }
  }
  while (true) ::pause();  // with all that it keeps
}

}  // namespace lmdbio::test
