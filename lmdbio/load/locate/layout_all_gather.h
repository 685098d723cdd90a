// lmdbio/load/locate/layout_all_gather.h - hosts divide a walk over leaf pages and exchange the
// results.
//
// The leaves are cut into steps, the same on every host. In each round every host walks one step.
// The readers then exchange the resulting layout parts by a ring allgather. So a leaf page is read
// from storage once, for any number of hosts.
//
// Source: docs/many_hosts.md "A shared walk".
#ifndef LMDBIO_LOAD_LOCATE_LAYOUT_ALL_GATHER_H_
#define LMDBIO_LOAD_LOCATE_LAYOUT_ALL_GATHER_H_

#include <functional>
#include <memory>
#include <vector>

#include "lmdbio/file/layout/layout.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::load {

// Threads: one at a time; Stop from any thread.
class LayoutAllGather {
 public:
  // readers   one reader of each host; at least two
  // known_as  the rank of this process in the whole job, for messages
  // Errors:     kIo  the readers cannot reach each other
  // Collective: over `readers`
  static Result<std::unique_ptr<LayoutAllGather>> Create(ranks::Group& readers, int known_as);

  size_t host_index() const { return static_cast<size_t>(rank_); }
  size_t host_count() const { return static_cast<size_t>(size_); }

  // One round: sends the part of this host to all and returns the parts of all hosts, in the order
  // of hosts. Each part counts its records from 0.
  // Errors:     kPeerFailed  a host is gone, or has left, or Stop was called; kCorruption. After an
  //             error the ring is broken for all hosts
  // Collective: over the readers, in every round
  Result<std::vector<file::Layout>> Exchange(const file::Layout& mine);

  // Breaks the ring, because this host cannot continue.
  void Leave(const Error& why);

  void Stop() { links_->Stop(); }

 private:
  Result<std::vector<file::Layout>> GoRound(const file::Layout& mine);
  LayoutAllGather(std::unique_ptr<ranks::PeerLinks> links, const ranks::Group& readers);

  std::unique_ptr<ranks::PeerLinks> links_;
  int rank_;
  int size_;
  int before_;
  int behind_;
};

// Encodes a layout for another process of this job.
std::vector<std::byte> EncodePiece(const file::Layout& piece);
// Errors: kCorruption  the bytes are not a result of EncodePiece
Result<file::Layout> DecodePiece(Bytes bytes);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_LAYOUT_ALL_GATHER_H_
