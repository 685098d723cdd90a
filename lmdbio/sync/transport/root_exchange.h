// lmdbio/sync/transport/root_exchange.h - the part of an exchange that passes between hosts, along
// a tree of links between their roots.
//
//             rank 0             up:    a root merges the packed contributions of its children into
//           /  |  |  \                  its own, and sends them to its parent
//      root 1 ... root 4         down:  the answer of rank 0 goes from parent to child
//      /  |
//   root 5 ...
//
// kIntersect goes up and down, kGather only up, kBroadcast only down.
//
// Source: docs/sync.md "Pacing and waiting".
#ifndef LMDBIO_SYNC_TRANSPORT_ROOT_EXCHANGE_H_
#define LMDBIO_SYNC_TRANSPORT_ROOT_EXCHANGE_H_

#include <chrono>
#include <memory>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/group/host_topology.h"
#include "lmdbio/ranks/net/peer_links.h"
#include "lmdbio/sync/control/exchange.h"
#include "lmdbio/sync/transport/partial_reply.h"

namespace lmdbio::sync {

// Threads: one at a time.
class RootExchange {
 public:
  // Collective over the roots of all hosts.
  // roots     not needed afterwards
  // known_as  the rank of this root in the job, for messages
  // Errors: kIo          the roots of two hosts cannot connect
  //         kPeerFailed  another root had an error
  static Result<std::unique_ptr<RootExchange>> Open(ranks::Group& roots, int known_as);

  // Collective. Begins an exchange.
  // reply     has the contributions of this host; Advance completes it. Outlives the exchange
  // Requires: no exchange is in progress
  void Begin(ExchangeKind kind, PartialReply& reply);
  // Goes on without waiting. Returns whether the exchange is over.
  // Errors: kPeerFailed  a root is gone; names it
  //         kInternal    a malformed message
  Result<bool> Advance();
  // Sleeps until there is a message for the exchange in progress, or the limit has passed. Returns
  // whether there is one.
  bool Await(std::chrono::milliseconds limit);

  // Sends the bytes that found no room on the way. Returns whether everything is sent.
  bool Flush() { return links_->Flush(); }

 private:
  enum class ExchangeDirection { kNone, kUp, kDown };
  RootExchange() = default;
  Result<bool> AdvanceUp();
  Result<bool> AdvanceDown();

  ranks::TreeNeighbours neighbours_;
  std::unique_ptr<ranks::PeerLinks> links_;
  ExchangeKind kind_ = ExchangeKind::kIntersect;
  ExchangeDirection direction_ = ExchangeDirection::kNone;
  PartialReply* reply_ = nullptr;      // of the exchange in progress
  std::vector<int> awaited_children_;  // their messages have not arrived
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_ROOT_EXCHANGE_H_
