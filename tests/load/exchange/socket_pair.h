// tests/load/exchange/socket_pair.h - the two ends of a connection between readers.
#ifndef LMDBIO_TESTS_LOAD_EXCHANGE_SOCKET_PAIR_H_
#define LMDBIO_TESTS_LOAD_EXCHANGE_SOCKET_PAIR_H_

#include <sys/socket.h>

#include <array>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::load {

// Both ends do not block.
inline std::pair<UniqueFd, UniqueFd> SocketPair() {
  std::array<int, 2> fds{};
  LMDBIO_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) ==
               0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

}  // namespace lmdbio::load
#endif  // LMDBIO_TESTS_LOAD_EXCHANGE_SOCKET_PAIR_H_
