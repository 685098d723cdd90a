// lmdbio/sync/transport/shared_transport.h - exchanges over the memory of hosts, and links between
// them.
//
// On a host every rank lays down what it brings and reads what it needs. Of several hosts the roots
// pass it up a tree of links to rank 0, and down again. Who waits sleeps. No call of MPI's is made
// after the beginning.
//
// Source: dissertation 8.3.2; docs/sync.md "Pacing and waiting".
#ifndef LMDBIO_SYNC_TRANSPORT_SHARED_TRANSPORT_H_
#define LMDBIO_SYNC_TRANSPORT_SHARED_TRANSPORT_H_

#include <memory>
#include <utility>
#include <vector>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/net/peer_links.h"
#include "lmdbio/sync/transport/host_all_gather.h"
#include "lmdbio/sync/transport/shared_mailboxes.h"
#include "lmdbio/sync/transport/transport.h"

namespace lmdbio::sync {

class SharedTransport final : public Transport {
 public:
  // Collective over `group`, which is not needed afterwards.
  // health  must outlive this
  // Errors: kResourceExhausted  no shared memory on this host
  //         kPeerFailed         none on another
  //         kIo                 the roots of two hosts cannot reach each other
  //         kInternal
  static Result<std::unique_ptr<SharedTransport>> Create(ranks::Group& group,
                                                         ranks::Health& health);

  const sync::Ranks& ranks() const override { return ranks_; }
  Status Start(sync::Exchange exchange) override;
  Result<bool> Test() override;
  Result<bool> Wait(std::chrono::microseconds limit) override;
  sync::Reply TakeReply() override { return std::move(reply_); }
  void Sleep(std::chrono::microseconds limit, WakeOn wake_on) override;
  bool hears_peers() const override { return links_ == nullptr; }
  void Wake() override { board_->Ring(board_->rank()); }
  void Ring() override { board_->CallMissing(); }
  bool take_ring() override { return board_->TakeCall(); }
  void Abandon() override { board_->Abandon(); }

 private:
  // An exchange goes through these in this order, as far as its scope needs them. The ranks of a
  // host meet; the roots pass up what their hosts have brought, and down what has become of it; the
  // root of a host tells its ranks.
  enum class Phase { kOver, kHostIn, kRootsUp, kRootsDown, kHostOut };

  SharedTransport() = default;
  bool is_root() const { return board_->rank() == 0; }
  bool has_parent() const { return neighbours_.parent.has_value(); }
  std::vector<std::byte> MessageInto() const;
  void TakeHostMessages();
  Status BeginAcrossRoots();
  Result<bool> AdvanceUp();
  Result<bool> AdvanceDown();
  Status PassDown();
  bool is_flushed();
  void BeginHostOut();
  void Finish();
  void IntersectWith(Bytes words);
  Status Merge(Bytes message);
  std::vector<std::byte> PackBrought() const;
  Result<bool> Step();

  sync::Ranks ranks_;
  std::unique_ptr<SharedMailboxes> board_;
  std::unique_ptr<HostAllGather> meeting_;
  ranks::Health* health_ = nullptr;
  int host_index_ = 0;
  std::vector<int> host_ranks_;              // [ranks of the host] their ranks among all
  ranks::TreeNeighbours neighbours_;         // of roots, in a tree of them
  std::unique_ptr<ranks::PeerLinks> links_;  // null: one host, or not a root

  sync::Exchange exchange_;
  sync::Reply reply_;
  Phase phase_ = Phase::kOver;
  std::vector<uint64_t> words_;                                  // kIntersect, so far
  std::vector<std::pair<int, std::vector<std::byte>>> brought_;  // kGather: by rank in scope
  std::vector<std::byte> answer_;                                // what goes down and out
  std::vector<int> awaited_children_;
  bool spans_hosts_ = false;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_TRANSPORT_SHARED_TRANSPORT_H_
