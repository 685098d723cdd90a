// lmdbio/exchange/piece_ring.h - hosts divide a walk over leaf pages and exchange the results.
//
// The leaves are cut into steps, the same on every host. In each round every host walks one step.
// The readers then exchange the resulting layout parts by a ring allgather. So a leaf page is read
// from storage once, for any number of hosts.
//
// Source: docs/many_hosts.md "A shared walk".
#ifndef LMDBIO_EXCHANGE_PIECE_RING_H_
#define LMDBIO_EXCHANGE_PIECE_RING_H_

#include <functional>
#include <memory>
#include <vector>

#include "lmdbio/comm/group.h"
#include "lmdbio/comm/peer_links.h"
#include "lmdbio/layout/layout.h"

namespace lmdbio::exchange {

// Threads: one at a time; Stop from any thread.
class PieceRing {
 public:
  // readers   one reader of each host; at least two
  // known_as  the rank of this process in the whole job, for messages
  // Errors:     kIo  the readers cannot reach each other
  // Collective: over `readers`
  static Result<std::unique_ptr<PieceRing>> Create(comm::Group& readers, int known_as);

  size_t host_index() const { return static_cast<size_t>(rank_); }
  size_t host_count() const { return static_cast<size_t>(size_); }

  // One round: sends the part of this host to all and returns the parts of all hosts, in the order
  // of hosts. Each part counts its records from 0.
  // Errors:     kPeerFailed  a host is gone, or has left, or Stop was called; kCorruption. After an
  //             error the ring is broken for all hosts
  // Collective: over the readers, in every round
  Result<std::vector<layout::Layout>> Exchange(const layout::Layout& mine);

  // Breaks the ring, because this host cannot continue.
  void Leave(const Error& why);

  void Stop() { links_->Stop(); }

 private:
  Result<std::vector<layout::Layout>> GoRound(const layout::Layout& mine);
  PieceRing(std::unique_ptr<comm::PeerLinks> links, const comm::Group& readers);

  std::unique_ptr<comm::PeerLinks> links_;
  int rank_;
  int size_;
  int before_;
  int behind_;
};

// Encodes a layout for another process of this job.
std::vector<std::byte> EncodePiece(const layout::Layout& piece);
// Errors: kCorruption  the bytes are not a result of EncodePiece
Result<layout::Layout> DecodePiece(Bytes bytes);

}  // namespace lmdbio::exchange
#endif  // LMDBIO_EXCHANGE_PIECE_RING_H_
