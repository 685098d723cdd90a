// lmdbio/sync/transport/root_exchange.h - the part of an exchange that passes between hosts, along
// a tree of links between their roots.
//
//             rank 0             up:    a root merges the packed contributions of its children into
//           /  |  |  \                  its own, and sends them to its parent
//      root 1 ... root 4         down:  the answer of rank 0 goes from parent to child
//      /  |
//   root 5 ...
//
// kIntersect goes up and down, kGather only up, kBroadcast only down. An exchange passes the whole
// tree, or only the links between a root and its children.
//
// Source: docs/coordinators.md "Tree of hosts".
#ifndef LMDBIO_SYNC_TRANSPORT_ROOT_EXCHANGE_H_
#define LMDBIO_SYNC_TRANSPORT_ROOT_EXCHANGE_H_

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/group/host_topology.h"
#include "lmdbio/ranks/net/peer_links.h"
#include "lmdbio/sync/control/exchange.h"
#include "lmdbio/sync/transport/partial_reply.h"

namespace lmdbio::sync {

// The roots that take part in an exchange.
enum class RootScope {
  kAll,       // all; rank 0 is the first
  kChildren,  // this root, which is the first, and its children
  kParent,    // the same, from the place of a child
};

// Threads: one at a time.
class RootExchange {
 public:
  // Collective over the roots of all hosts.
  // roots         not needed afterwards
  // known_as      the rank of this root in the job, for messages
  // children_max  [> 0] of a root, the same on every root
  // Errors: kIo          the roots of two hosts cannot connect
  //         kPeerFailed  another root had an error
  static Result<std::unique_ptr<RootExchange>> Open(ranks::Group& roots, int known_as,
                                                    int children_max);

  // Collective over the scope. Begins an exchange.
  // reply     has the contribution of this root; Advance completes it. Outlives the exchange
  // Requires: no exchange is in progress; rank 0 is in no scope kParent
  void Begin(ExchangeKind kind, RootScope scope, PartialReply& reply);
  // Goes on without waiting. Returns whether the exchange is over.
  // Errors: kPeerFailed  a root is gone; names it
  //         kInternal    a malformed message
  Result<bool> Advance();
  // Sleeps until there is a message for the exchange in progress, or the limit has passed. Returns
  // whether there is one.
  bool Await(std::chrono::milliseconds limit);

  // This root makes no further exchange. Its neighbours in the tree get `why` in place of its
  // messages.
  void Abandon(const Error& why);

  // Sends the bytes that found no room on the way. Returns whether everything is sent.
  bool Flush() { return links_->Flush(); }

 private:
  enum class ExchangeDirection { kNone, kUp, kDown };
  RootExchange() = default;
  bool has_upper() const {
    return scope_ != RootScope::kChildren && neighbours_.parent.has_value();
  }
  std::span<const int> lower() const;
  Status Post(int to, const std::vector<std::byte>& message);
  Result<bool> AdvanceUp();
  Result<bool> AdvanceDown();

  ranks::TreeNeighbours neighbours_;
  std::unique_ptr<ranks::PeerLinks> links_;
  ExchangeKind kind_ = ExchangeKind::kIntersect;
  RootScope scope_ = RootScope::kAll;
  ExchangeDirection direction_ = ExchangeDirection::kNone;
  PartialReply* reply_ = nullptr;      // of the exchange in progress
  std::vector<int> awaited_children_;  // their messages have not arrived
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_ROOT_EXCHANGE_H_
