// lmdbio/load/locate/location_broadcast.h - one reader walks and sends record locations to all
// hosts.
//
// The reader of the first host moves its cursor through each batch and sends the locations of all
// records down a binary tree of readers. Every reader uses the locations that its host needs. So
// the tree pages are read from storage once, for any number of hosts.
//
// Source: dissertation 5.2.1 (one process seeks and sends offsets to the readers);
// docs/many_hosts.md "One walker".
#ifndef LMDBIO_LOAD_LOCATE_LOCATION_BROADCAST_H_
#define LMDBIO_LOAD_LOCATE_LOCATION_BROADCAST_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/file/layout/record_run.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::load {

// Threads: one at a time; Stop from any thread.
class LocationBroadcast {
 public:
  // readers   one reader of each host; at least two. The first one is the walker
  // known_as  the rank of this process in the whole job, for messages
  // Errors:     kIo  the readers cannot reach each other
  // Collective: over `readers`
  static Result<std::unique_ptr<LocationBroadcast>> Create(ranks::Group& readers, int known_as);

  bool is_walker() const { return !parent_; }

  // For the walker: sends the locations of a batch to all. Does not sleep; bytes that do not fit
  // into the socket buffers wait for Flush or Drain.
  // Errors: kPeerFailed  a child in the tree is gone
  Status Send(std::span<const file::RecordLocation> places);

  // For the other readers: sleeps until the locations of the next batch arrive, and forwards them.
  // Returns nothing after Stop.
  // Errors: kPeerFailed  the parent in the tree is gone, or has failed; kCorruption
  Result<std::optional<std::vector<file::RecordLocation>>> Receive();

  // Whether Receive would return without sleeping.
  bool HasPlaces();
  // Sends as many waiting bytes as the buffers take; false if some remain.
  bool Flush() { return links_->Flush(); }
  // Sleeps until all waiting bytes are sent. Errors: kPeerFailed
  Status Drain() { return links_->Drain(); }

  // Sends the failure of this reader to its children, which forward it.
  void SendFailure(const Error& error);
  void Stop() { links_->Stop(); }

 private:
  LocationBroadcast(std::unique_ptr<ranks::PeerLinks> links, std::optional<int> parent,
                    std::vector<int> children);
  Status Post(Bytes message);

  std::unique_ptr<ranks::PeerLinks> links_;
  std::optional<int> parent_;
  std::vector<int> children_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_LOCATION_BROADCAST_H_
