// lmdbio/ranks/net/peer_address.h - where a process can be reached over TCP.
#ifndef LMDBIO_RANKS_NET_PEER_ADDRESS_H_
#define LMDBIO_RANKS_NET_PEER_ADDRESS_H_

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::ranks {

// An address of one network interface, IPv4 mapped into IPv6. Trivially copyable, to be exchanged.
struct PeerAddress {
  std::array<uint8_t, 16> ip{};
  uint8_t prefix_bits = 0;  // of the interface's network
  uint16_t port = 0;        // where somebody listens there; 0: nobody does

  friend bool operator==(const PeerAddress&, const PeerAddress&) = default;
};

// What a process tells the others of itself.
struct Reachability {
  static constexpr size_t kAddressesMax = 8;
  uint16_t address_count = 0;  // 0: it does not listen
  std::array<PeerAddress, kAddressesMax> addresses{};
};
static_assert(std::is_trivially_copyable_v<Reachability>);

// The addresses of this host's interfaces that are up, loopback last; at most kAddressesMax.
std::vector<PeerAddress> OwnAddresses();

// Whether only processes of the same network namespace reach it.
bool IsLoopback(const PeerAddress& address);

// A number for the network namespace of this process, which others on this kernel have in common
// with it if and only if they are in the same one; 0 where the kernel does not tell.
uint64_t NetworkNamespace();

// `theirs` in the order in which they are worth a try: first those in a network of `mine`.
std::vector<PeerAddress> InOrderOfTry(std::span<const PeerAddress> mine,
                                      std::span<const PeerAddress> theirs);

// A socket that does not block, on its way to `address`; whether it arrives, poll tells.
// Errors: kIo                 it could not even begin; names the call and the reason
//         kResourceExhausted  no descriptor is left
Result<UniqueFd> BeginConnect(const PeerAddress& address);

// "10.1.2.3", "fe80::1"
std::string Text(const PeerAddress& address);

// A socket that listens at `address` and nowhere else, at a port that was free, which becomes the
// address's. Does not block.
// Errors: as BeginConnect
Result<UniqueFd> ListenAt(PeerAddress& address);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_PEER_ADDRESS_H_
