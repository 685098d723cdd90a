// lmdbio/ranks/net/peer_address.h - the TCP addresses of a process.
#ifndef LMDBIO_RANKS_NET_PEER_ADDRESS_H_
#define LMDBIO_RANKS_NET_PEER_ADDRESS_H_

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::ranks {

// An address of one network interface, IPv4 mapped into IPv6. Ranks exchange it as bytes.
struct PeerAddress {
  std::array<uint8_t, 16> ip{};
  uint8_t prefix_bits = 0;  // of the interface's network
  uint16_t port = 0;        // of the listening socket there; 0: none

  friend bool operator==(const PeerAddress&, const PeerAddress&) = default;
};

// The addresses at which a process listens, as it tells them to the other processes.
struct Reachability {
  static constexpr size_t kAddressesMax = 8;
  uint16_t address_count = 0;  // 0: it does not listen
  std::array<PeerAddress, kAddressesMax> addresses{};
};
static_assert(std::is_trivially_copyable_v<Reachability>);

// The bytes of a Reachability of another process; nothing if they are no valid one.
std::optional<Reachability> ReachabilityIn(Bytes bytes);

// The addresses of this host's interfaces that are up, loopback last; at most kAddressesMax.
// Errors: kResourceExhausted  no descriptor for the question; names the limit
//         kIo                 the system does not tell its interfaces
Result<std::vector<PeerAddress>> OwnAddresses();

// The addresses of a host by its name, or of an address as text; without ports.
// Errors: kIo  the name is unknown; names it and the reason
// Cost: may ask a name server, and sleeps meanwhile
Result<std::vector<PeerAddress>> ResolveHost(const std::string& host);

// To listen at all addresses of this host: of both families, and of IPv4 alone.
PeerAddress AnyAddress();
PeerAddress AnyAddressOfV4();

// 127.0.0.1 and ::1.
std::vector<PeerAddress> LoopbackAddresses();

// Whether only processes of the same network namespace can connect to `address`.
bool IsLoopback(const PeerAddress& address);

// Identifies the network namespace of this process among all namespaces of this kernel; 0 if the
// kernel does not provide it.
uint64_t NetworkNamespace();

// Sorts `theirs` for connection attempts: addresses in a network of `mine` first, loopback last.
std::vector<PeerAddress> InOrderOfTry(std::span<const PeerAddress> mine,
                                      std::span<const PeerAddress> theirs);

// "10.1.2.3", "fe80::1"
std::string Text(const PeerAddress& address);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_PEER_ADDRESS_H_
