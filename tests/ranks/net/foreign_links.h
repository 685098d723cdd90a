// tests/ranks/net/foreign_links.h - links whose other ends are not those of this library.
#ifndef LMDBIO_TESTS_RANKS_NET_FOREIGN_LINKS_H_
#define LMDBIO_TESTS_RANKS_NET_FOREIGN_LINKS_H_

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/ranks/net/peer_links.h"
#include "lmdbio/ranks/net/peer_rendezvous.h"
#include "tests/support/good.h"

namespace lmdbio::test {

class ForeignLinks {
 public:
  // The links of a rank to `neighbours`, in both directions.
  ForeignLinks(int rank_count, std::span<const int> neighbours) : rank_count_(rank_count) {
    for (const int neighbour : neighbours) {
      met_.incoming[neighbour] = Pair();
      met_.outgoing[neighbour] = Pair();
    }
  }

  // Once.
  std::unique_ptr<ranks::PeerLinks> TakeLinks() {
    std::vector<std::string> names;
    for (int rank = 0; rank < rank_count_; ++rank) names.push_back("rank " + std::to_string(rank));
    return Good(ranks::PeerLinks::Adopt(std::move(met_), std::move(names)));
  }

  // From the neighbour with this index.
  void Send(size_t neighbour, Bytes bytes) const {
    if (::send(ends_[2 * neighbour].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("send");
    }
  }
  // The frame of a message or failure, and its bytes.
  // length_bytes  as the frame says
  void SendFrame(size_t neighbour, uint32_t kind, uint64_t length_bytes, Bytes bytes) const {
    struct {
      uint32_t kind;
      int32_t error_number;
      uint64_t length_bytes;
    } const frame{kind, 0, length_bytes};
    Send(neighbour, std::as_bytes(std::span(&frame, 1)));
    if (!bytes.empty()) Send(neighbour, bytes);
  }

 private:
  UniqueFd Pair() {
    std::array<int, 2> fds{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()) != 0) {
      throw std::runtime_error("socketpair");
    }
    ends_.emplace_back(fds[1]);
    return UniqueFd(fds[0]);
  }

  int rank_count_;
  ranks::RendezvousResult met_;
  std::deque<UniqueFd> ends_;  // of each neighbour: incoming, outgoing
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_RANKS_NET_FOREIGN_LINKS_H_
