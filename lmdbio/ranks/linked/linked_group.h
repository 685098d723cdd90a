// lmdbio/ranks/linked/linked_group.h - a group whose collective calls go over links along a tree.
//
// A value of each rank goes up the tree to rank 0, and all values come down again. A broadcast goes
// along the tree from its root. The messages of a call carry its kind, its number and its size, so
// ranks that make different calls get an error.
//
// Source: docs/launchers.md "Collective calls".
#ifndef LMDBIO_RANKS_LINKED_LINKED_GROUP_H_
#define LMDBIO_RANKS_LINKED_LINKED_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/linked/rank_watch.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::ranks {

// Shared memory of another kind: where the system refuses files in memory, and on request.
// Threads: one at a time.
class WindowMaker {
 public:
  virtual ~WindowMaker() = default;

  // Collective over `members`, which share memory.
  // members     [> 1] ranks of the job, in the order of the group
  // size_bytes  [the same on every rank]
  // why_window  the refusal of the system; empty on request
  // Errors: as Group::AllocateShared
  virtual Result<std::unique_ptr<SharedMemory>> Allocate(std::span<const int> members,
                                                         uint64_t size_bytes,
                                                         std::string_view why_window) = 0;
};

class LinkedGroup final : public Group {
 public:
  // The parent and children of a rank.
  static TreeNeighbours Neighbours(int rank, int size);

  // All ranks of a job.
  // links  to the neighbours of this rank, in both directions
  // check  called while this rank waits, until WatchBy; an error ends the call
  LinkedGroup(int rank, int size, std::unique_ptr<PeerLinks> links, std::function<Status()> check);

  // Collective. Finds the ranks that share a host. Until then, each is alone.
  // Errors: as Barrier
  Status FindHosts();

  // From now on `watch` notices the end of ranks, for this group and its parts.
  void WatchBy(std::shared_ptr<RankWatch> watch);

  // From now on this group and its parts have windows.
  void MakeWindowsBy(std::shared_ptr<WindowMaker> windows) { windows_ = std::move(windows); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& host_name() const override { return host_name_; }

  // Errors: kPeerFailed  a rank has ended; names it
  //         kInternal    the ranks make different calls, and names both; a neighbour has sent a
  //                      malformed part
  Status Barrier() override;
  Status Broadcast(int root, MutableBytes bytes) override;
  Result<std::vector<std::byte>> AllGather(Bytes mine) override;
  Result<std::unique_ptr<Group>> SplitByHost() override;
  Result<std::unique_ptr<Group>> Split(int color) override;
  Result<std::unique_ptr<SharedMemory>> AllocateShared(uint64_t size_bytes) override;
  Result<std::unique_ptr<SharedMemory>> AllocateMpiWindow(uint64_t size_bytes) override;
  Status CheckRanks() override;
  Status CheckRanksWithin(std::chrono::milliseconds limit) override;

 private:
  struct CallHead;
  enum class CollectiveKind : uint32_t;
  // The ranks of a part, by their numbers in the group that it is split from.
  LinkedGroup(const LinkedGroup& whole, std::vector<int> members, std::unique_ptr<PeerLinks> links);

  int number_of(int rank) const { return numbers_[static_cast<size_t>(rank)]; }
  static std::string WordsOf(const CallHead& head);
  Status Send(int to, const CallHead& head, Bytes body);
  Result<std::vector<std::byte>> Receive(int from, const CallHead& expected);
  tl::unexpected<Error> MalformedPart(int from);
  bool PlaceParts(Bytes parts, MutableBytes all) const;
  Status SendRest();
  Result<std::vector<std::byte>> GatherPiece(CollectiveKind kind, Bytes mine);
  Status BroadcastPiece(int root, MutableBytes piece);
  int TowardsRoot(int root) const;
  Error ReasonOfLoss(const Error& loss);
  Error Break(Error reason);

  int rank_;
  int size_;
  std::unique_ptr<PeerLinks> links_;
  std::vector<int> numbers_;       // [size] in links_
  std::vector<int> ranks_of_job_;  // [size] the numbers in the whole job
  std::vector<int> hosts_;         // [size]
  std::string own_host_;           // the name of this host
  std::string host_name_;          // "" if all ranks share a host
  TreeNeighbours neighbours_;
  std::function<Status()> check_;
  std::shared_ptr<RankWatch> watch_;      // may be null
  std::shared_ptr<WindowMaker> windows_;  // null without MPI
  uint64_t call_count_ = 0;
  bool is_broken_ = false;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_LINKED_LINKED_GROUP_H_
