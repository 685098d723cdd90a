// lmdbio/exchange/place_broadcast.h - one reader walks, and tells all hosts where the records lie.
//
// The first host's reader steps its cursor through each batch and sends the places of all its
// records down a binary tree of readers; every reader takes from them what its host needs. So the
// tree pages cross the storage once, however many hosts there are.
//
// Source: dissertation 5.2.1 (one process seeks and sends offsets to the readers);
// docs/many_hosts.md "One walker".
#ifndef LMDBIO_EXCHANGE_PLACE_BROADCAST_H_
#define LMDBIO_EXCHANGE_PLACE_BROADCAST_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/comm/group.h"
#include "lmdbio/comm/peer_links.h"
#include "lmdbio/layout/record_run.h"

namespace lmdbio::exchange {

// Threads: one at a time, but Stop from any.
class PlaceBroadcast {
 public:
  // Collective over `readers`, one reader of each host; at least two. The first one walks.
  // known_as  this process in messages: its rank in the whole job
  // Errors: kIo  the readers cannot reach each other
  static Result<std::unique_ptr<PlaceBroadcast>> Create(comm::Group& readers, int known_as);

  bool is_walker() const { return !parent_; }

  // The walker's: sends the places of a batch to all. Does not sleep; what does not fit into
  // buffers waits for Flush or Drain.
  // Errors: kPeerFailed  a host that this one sends to is gone
  Status Send(std::span<const layout::RecordPlace> places);

  // The others': sleeps until the places of the next batch are here, and passes them on; nothing
  // after Stop.
  // Errors: kPeerFailed  the host before this one is gone, or has failed; kCorruption
  Result<std::optional<std::vector<layout::RecordPlace>>> Receive();

  // Whether Receive would not sleep.
  bool HasPlaces();
  // Sends what is left as far as there is room for it; false if something remains.
  bool Flush() { return links_->Flush(); }
  // The same, asleep until nothing is left. Errors: kPeerFailed
  Status Drain() { return links_->Drain(); }

  // Tells those that this one sends to, and so all below, that it cannot go on.
  void SendFailure(const Error& error);
  void Stop() { links_->Stop(); }

 private:
  PlaceBroadcast(std::unique_ptr<comm::PeerLinks> links, std::optional<int> parent,
                 std::vector<int> children);
  Status Post(Bytes message);

  std::unique_ptr<comm::PeerLinks> links_;
  std::optional<int> parent_;
  std::vector<int> children_;
};

}  // namespace lmdbio::exchange
#endif  // LMDBIO_EXCHANGE_PLACE_BROADCAST_H_
