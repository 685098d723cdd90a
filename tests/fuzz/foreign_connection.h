// tests/fuzz/foreign_connection.h - a connection whose other end sends what a fuzzer wants.
#ifndef LMDBIO_TESTS_FUZZ_FOREIGN_CONNECTION_H_
#define LMDBIO_TESTS_FUZZ_FOREIGN_CONNECTION_H_

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/base/types.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::test {

class ForeignConnection {
 public:
  ForeignConnection() {
    std::array<int, 2> fds{};
    LMDBIO_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) ==
                 0);
    ours_ = UniqueFd(fds[0]);
    theirs_ = UniqueFd(fds[1]);
  }

  // The end that does not block, of the code that is tried.
  UniqueFd TakeOurs() { return std::move(ours_); }

  // bytes  [at most what the buffer of a connection holds]
  void Send(Bytes bytes) const {
    const auto sent = ::send(theirs_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    // Our end may have refused the bytes before and be closed.
    LMDBIO_CHECK(sent < 0 || static_cast<size_t>(sent) == bytes.size());
  }
  // No more bytes will come.
  void End() const { ::shutdown(theirs_.get(), SHUT_WR); }

  // Sends in pieces, of which there are at most 64, and calls `receive` after each of them and
  // after the end.
  void SendInPieces(Bytes bytes, size_t piece_bytes, const std::function<void()>& receive) const {
    constexpr size_t kPiecesMax = 64;
    const size_t most = std::max({piece_bytes, bytes.size() / kPiecesMax + 1, size_t{1}});
    while (!bytes.empty()) {
      const Bytes piece = bytes.first(std::min(most, bytes.size()));
      bytes = bytes.subspan(piece.size());
      Send(piece);
      receive();
    }
    End();
    receive();
  }

 private:
  UniqueFd ours_;
  UniqueFd theirs_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FUZZ_FOREIGN_CONNECTION_H_
