// lmdbio/ranks/net/link_socket.h - the sockets of links.
//
// This file makes every TCP socket of the library and is the only place that sets socket options.
#ifndef LMDBIO_RANKS_NET_LINK_SOCKET_H_
#define LMDBIO_RANKS_NET_LINK_SOCKET_H_

#include <chrono>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/net/peer_address.h"

namespace lmdbio::ranks {

// Keepalive ends a connection whose host has vanished after this time without an answer. It begins
// to probe after kKeepaliveIdle, and gives up after kKeepaliveProbes probes without an answer.
constexpr auto kKeepaliveIdle = std::chrono::seconds(20);
constexpr auto kKeepaliveInterval = std::chrono::seconds(5);
constexpr int kKeepaliveProbes = 4;

// Begins to connect to `address`. poll reports the socket as writable when the attempt is over.
// Returns: a socket that does not block, with the options of a link
// Errors: kIo                 the attempt could not begin; names the call and the reason
//         kResourceExhausted  no descriptor is left; names the limit
Result<UniqueFd> BeginConnect(const PeerAddress& address);

// Listens at `address` alone, at a free port, and stores the port in `address`.
// Returns: a socket that does not block
// Errors: as BeginConnect
Result<UniqueFd> ListenAt(PeerAddress& address);

// Listens at the address and port of `address`, also if connections of an ended process linger
// there.
// Errors: as BeginConnect; the errno is EADDRINUSE if another socket listens there
Result<UniqueFd> ListenAtPort(const PeerAddress& address);

// Takes the next connection from the queue of `listener`.
// Returns: a socket that does not block, with the options of a link; an empty one if accept4 fails,
//          which then leaves its errno
UniqueFd AcceptLink(const UniqueFd& listener);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_NET_LINK_SOCKET_H_
