// lmdbio/exchange/piece_ring.h - hosts that share out a walk over leaf pages.
//
// The leaves are cut into steps, the same on every host. In each round every host walks one step
// and hands its records on round a ring of readers until all hosts have those of all; so a leaf
// page crosses the storage once, however many hosts there are.
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

// Threads: one at a time, but Stop from any.
class PieceRing {
 public:
  // Collective over `readers`, one reader of each host; at least two.
  // known_as  this process in messages: its rank in the whole job
  // Errors: kIo  the readers cannot reach each other
  static Result<std::unique_ptr<PieceRing>> Create(comm::Group& readers, int known_as);

  size_t host_index() const { return static_cast<size_t>(rank_); }
  size_t host_count() const { return static_cast<size_t>(size_); }

  // One round: gives this host's piece to all and returns everybody's, host after host. Each counts
  // its records from 0.
  // Errors: kPeerFailed  a host is gone, or walks by itself from now on; kCorruption; also after
  //         Stop. The ring is broken then, for all hosts
  Result<std::vector<layout::Layout>> Exchange(const layout::Layout& mine);

  // Breaks the ring: this host cannot go on.
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

// A layout as bytes, for another process of this job.
std::vector<std::byte> EncodePiece(const layout::Layout& piece);
// Errors: kCorruption  the bytes are not those of EncodePiece
Result<layout::Layout> DecodePiece(Bytes bytes);

}  // namespace lmdbio::exchange
#endif  // LMDBIO_EXCHANGE_PIECE_RING_H_
