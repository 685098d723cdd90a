// lmdbio/sync/transport/shared_transport.h - exchanges over the memory of hosts, and links between
// them.
//
// On a host every rank writes its contribution to shared memory, and reads those that it needs. The
// roots of several hosts pass the contributions along a tree of links. A waiting rank sleeps. After
// Create there is no call of MPI.
//
// Source: dissertation 8.3.2; docs/sync.md "Pacing and waiting".
#ifndef LMDBIO_SYNC_TRANSPORT_SHARED_TRANSPORT_H_
#define LMDBIO_SYNC_TRANSPORT_SHARED_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/transport/host_all_gather.h"
#include "lmdbio/sync/transport/partial_reply.h"
#include "lmdbio/sync/transport/root_exchange.h"
#include "lmdbio/sync/transport/shared_mailboxes.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

class SharedTransport final : public Transport {
 public:
  // Collective over `group`, which is not needed afterwards.
  // health      must outlive this
  // tree_arity  as Ranks; links between roots form this tree, or one of arity 4 if it is 0
  // Errors: kResourceExhausted  no shared memory on this host, or no descriptors for the links of a
  //                             root: as many as the arity, and one
  //         kPeerFailed         another rank had an error
  //         kIo                 the roots of two hosts cannot connect
  //         kInternal           MPI failed, in its words
  static Result<std::unique_ptr<SharedTransport>> Create(ranks::Group& group, ranks::Health& health,
                                                         uint32_t tree_arity = 0);

  const Ranks& ranks() const override { return ranks_; }
  Status Start(Exchange exchange) override;
  Result<bool> Test() override;
  Result<bool> Wait(std::chrono::microseconds limit) override;
  Reply TakeReply() override { return partial_.TakeReply(); }
  void Sleep(std::chrono::microseconds limit, WakeOn wake_on) override;
  bool hears_peers() const override { return roots_ == nullptr; }
  void Wake() override { board_->Ring(board_->rank()); }
  void Ring() override { board_->CallMissing(); }
  bool take_ring() override { return board_->TakeCall(); }
  void Abandon(const Error& why) override;

 private:
  // An exchange goes through these phases in this order, and skips those that its scope does not
  // need:
  //
  //   kHostIn   the ranks of a host gather their contributions
  //   kRoots    the roots exchange the contributions of their hosts
  //   kHostOut  the root of a host gives the answer to its ranks
  enum class Phase { kOver, kHostIn, kRoots, kHostOut };

  SharedTransport() = default;
  bool is_root() const { return board_->rank() == 0; }
  std::vector<std::byte> OwnContribution() const;
  Status TakeHostMessages();
  bool is_among_roots() const;
  void BeginAcrossRoots();
  void BeginHostOut();
  bool is_flushed();
  Result<bool> Step();

  Ranks ranks_;
  std::unique_ptr<SharedMailboxes> board_;
  std::unique_ptr<HostAllGather> meeting_;
  ranks::Health* health_ = nullptr;
  int host_index_ = 0;
  std::vector<int> host_ranks_;          // [ranks of the host] their ranks among all
  std::unique_ptr<RootExchange> roots_;  // null: one host, or not a root
  bool spans_hosts_ = false;

  Exchange exchange_;
  PartialReply partial_{ExchangeKind::kIntersect, 0};
  Phase phase_ = Phase::kOver;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_SHARED_TRANSPORT_H_
