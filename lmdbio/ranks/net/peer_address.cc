#include "lmdbio/ranks/net/peer_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

constexpr int kMappedBits = 96;  // the constant prefix of an IPv4 address in IPv6

bool IsLinkLocal(const PeerAddress& address) {
  return address.ip[0] == 0xFE && (address.ip[1] & 0xC0) == 0x80;
}

uint8_t CountOnes(std::span<const uint8_t> mask) {
  int ones = 0;
  for (const uint8_t byte : mask) ones += __builtin_popcount(byte);
  return static_cast<uint8_t>(ones);
}

void SetV4(const in_addr& ip, PeerAddress& address) {
  address.ip[10] = address.ip[11] = 0xFF;
  std::memcpy(&address.ip[12], &ip, 4);
}

// Returns false for other families, and for addresses that need the name of their interface.
bool Convert(const ifaddrs& entry, PeerAddress& address) {
  if (entry.ifa_addr == nullptr || entry.ifa_netmask == nullptr) return false;
  if (entry.ifa_addr->sa_family == AF_INET) {
    sockaddr_in ip{};
    sockaddr_in mask{};
    std::memcpy(&ip, entry.ifa_addr, sizeof ip);
    std::memcpy(&mask, entry.ifa_netmask, sizeof mask);
    SetV4(ip.sin_addr, address);
    std::array<uint8_t, 4> bytes{};
    std::memcpy(bytes.data(), &mask.sin_addr, 4);
    address.prefix_bits = static_cast<uint8_t>(kMappedBits + CountOnes(bytes));
    return true;
  }
  if (entry.ifa_addr->sa_family != AF_INET6) return false;
  sockaddr_in6 ip{};
  sockaddr_in6 mask{};
  std::memcpy(&ip, entry.ifa_addr, sizeof ip);
  std::memcpy(&mask, entry.ifa_netmask, sizeof mask);
  std::memcpy(address.ip.data(), &ip.sin6_addr, 16);
  address.prefix_bits = CountOnes(std::span(mask.sin6_addr.s6_addr));
  return !IsLinkLocal(address);
}

// An IPv4 address is mapped into IPv6, so its network has 96 more prefix bits. Both families then
// compare in the same way.
bool InNetworkOf(const PeerAddress& address, const PeerAddress& network) {
  const size_t whole = network.prefix_bits / 8;
  const int rest = network.prefix_bits % 8;
  if (!std::equal(network.ip.begin(), network.ip.begin() + static_cast<std::ptrdiff_t>(whole),
                  address.ip.begin())) {
    return false;
  }
  return rest == 0 || (address.ip[whole] ^ network.ip[whole]) >> (8 - rest) == 0;
}

}  // namespace

Result<std::vector<PeerAddress>> ResolveHost(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) {
    return Fail(ErrorCode::kIo, fmt::format("the host '{}': {}", host, ::gai_strerror(code)));
  }
  std::vector<PeerAddress> found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    PeerAddress address;
    if (entry->ai_family == AF_INET) {
      sockaddr_in ip{};
      std::memcpy(&ip, entry->ai_addr, sizeof ip);
      SetV4(ip.sin_addr, address);
    } else if (entry->ai_family == AF_INET6) {
      sockaddr_in6 ip{};
      std::memcpy(&ip, entry->ai_addr, sizeof ip);
      std::memcpy(address.ip.data(), &ip.sin6_addr, 16);
    } else {
      continue;
    }
    if (std::find(found.begin(), found.end(), address) == found.end()) found.push_back(address);
  }
  ::freeaddrinfo(list);
  if (found.empty()) return Fail(ErrorCode::kIo, fmt::format("the host '{}' has no address", host));
  return found;
}

std::optional<Reachability> ReachabilityIn(Bytes bytes) {
  Reachability found;
  if (bytes.size() != sizeof found) return std::nullopt;
  std::memcpy(&found, bytes.data(), sizeof found);
  if (found.address_count > Reachability::kAddressesMax) return std::nullopt;
  return found;
}

PeerAddress AnyAddress() { return {}; }

PeerAddress AnyAddressOfV4() {
  PeerAddress any;
  SetV4(in_addr{}, any);
  return any;
}

std::vector<PeerAddress> LoopbackAddresses() {
  PeerAddress v4;
  SetV4(in_addr{htonl(INADDR_LOOPBACK)}, v4);
  PeerAddress v6;
  v6.ip[15] = 1;
  return {v4, v6};
}

bool IsLoopback(const PeerAddress& address) {
  const PeerAddress v4{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 0}, 104};
  const PeerAddress v6{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128};
  return InNetworkOf(address, v4) || InNetworkOf(address, v6);
}

uint64_t NetworkNamespace() {
  struct stat found = {};
  return ::stat("/proc/self/ns/net", &found) == 0 ? static_cast<uint64_t>(found.st_ino) : 0;
}

Result<std::vector<PeerAddress>> OwnAddresses() {
  std::vector<PeerAddress> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return CallFailed(ErrorCode::kIo, "getifaddrs", errno);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    PeerAddress address;
    if ((entry->ifa_flags & IFF_UP) != 0 && Convert(*entry, address)) found.push_back(address);
  }
  ::freeifaddrs(list);
  std::stable_partition(found.begin(), found.end(),
                        [](const PeerAddress& address) { return !IsLoopback(address); });
  // A loopback address always stays, because ranks of one host may have no other.
  if (found.size() > Reachability::kAddressesMax) {
    found[Reachability::kAddressesMax - 1] = found.back();
    found.resize(Reachability::kAddressesMax);
  }
  return found;
}

std::vector<PeerAddress> InOrderOfTry(std::span<const PeerAddress> mine,
                                      std::span<const PeerAddress> theirs) {
  // The sort is stable: within a class the other rank's order of interfaces stays.
  std::vector<PeerAddress> order(theirs.begin(), theirs.end());
  const auto rank = [&](const PeerAddress& address) {
    if (IsLoopback(address)) return 2;
    const bool is_near = std::any_of(mine.begin(), mine.end(), [&](const PeerAddress& own) {
      return InNetworkOf(address, own);
    });
    return is_near ? 0 : 1;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const PeerAddress& a, const PeerAddress& b) { return rank(a) < rank(b); });
  return order;
}

std::string Text(const PeerAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  in6_addr ip{};
  std::memcpy(&ip, address.ip.data(), address.ip.size());
  const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&ip);
  ::inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? &address.ip[12] : address.ip.data(), text.data(),
              text.size());
  return text.data();
}

}  // namespace lmdbio::ranks
