// lmdbio/ranks/group/group.h - the processes that work together, without a word of MPI.
//
// A group is a list of ranks that call the same things in the same order. Three kinds: one process
// alone (solo), the ranks of an MPI communicator (ranks/mpi/mpi_group.h), and threads that play
// ranks, for tests (ranks/group/thread_group.h). Everything above sees this interface only.
//
// "Collective" means: every rank of the group makes the call, in the same order relative to its
// other collective calls. A failure that only one rank can see must be agreed upon before the next
// collective call, or ranks would wait for each other: see Agree.
//
// Source: dissertation 3.2.1 (finding the processes that share a host); docs/loader.md "Ranks".
#ifndef LMDBIO_RANKS_GROUP_GROUP_H_
#define LMDBIO_RANKS_GROUP_GROUP_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/ranks/shm/shared_memory.h"

namespace lmdbio::ranks {

// Threads: one at a time in each rank.
// Lifetime: groups and memory made from a group may outlive it.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;  // 0 <= rank() < size()
  virtual int size() const = 0;

  // The name of this rank's host where the group spans several, for messages; otherwise "".
  virtual const std::string& host_name() const = 0;

  // Collective. Returns when every rank has called it; what a rank wrote to shared memory before,
  // every rank sees after.
  // Errors: kInternal  MPI failed, in its words
  virtual Status Barrier() = 0;

  // Collective. `bytes` of rank `root` become everybody's.
  // root   [0 <= root < size(); the same on every rank]
  // bytes  [the same size on every rank; any size]
  // Errors: as Barrier
  virtual Status Broadcast(int root, MutableBytes bytes) = 0;

  // Collective. Returns everybody's `mine`, rank after rank.
  // mine  [the same size on every rank; any size]
  // Returns: [size() * mine.size()]
  // Errors: as Barrier
  virtual Result<std::vector<std::byte>> AllGather(Bytes mine) = 0;

  // Collective. The ranks of this group that share memory with this one, in the order of their
  // ranks here.
  // Errors: as Barrier
  virtual Result<std::unique_ptr<Group>> SplitByHost() = 0;

  // Collective. The ranks that gave the same `color`, in the order of their ranks here.
  // color  [any number]
  // Errors: as Barrier
  virtual Result<std::unique_ptr<Group>> Split(int color) = 0;

  // Collective. Requires: all ranks share memory (SplitByHost made this group).
  // Ranks that are processes get a file in memory (host_memory.h), or a window of MPI's where the
  // system refuses that; the memory then has a note.
  // size_bytes  [the same on every rank; may be 0]
  // Errors: kResourceExhausted  no such amount of shared memory, the same on every rank; says what
  //                             there is, and how to get more
  //         kInvalidArgument    the ranks do not share memory, or ask for different sizes
  //         kInternal           MPI failed, in its words
  // Cost: pages are made when they are first touched, near the rank that touches them
  virtual Result<std::unique_ptr<SharedMemory>> AllocateShared(uint64_t size_bytes) = 0;
};

// The ranks that stand `step` places behind and before this one, in a ring of all.
// step  [0 < step <= size()]
inline int RankBehind(const Group& group, int step = 1) {
  return (group.rank() + step) % group.size();
}
inline int RankBefore(const Group& group, int step = 1) {
  return (group.rank() + group.size() - step) % group.size();
}

// The ranks above and below this one in a tree of all, with rank 0 at the top.
struct TreeNeighbours {
  std::optional<int> parent;
  std::vector<int> children;
};
// child_count_max  [> 0] of any rank
inline TreeNeighbours NeighboursInTree(const Group& group, int child_count_max) {
  TreeNeighbours neighbours;
  if (group.rank() > 0) neighbours.parent = (group.rank() - 1) / child_count_max;
  for (int i = 1; i <= child_count_max; ++i) {
    const int child = child_count_max * group.rank() + i;
    if (child < group.size()) neighbours.children.push_back(child);
  }
  return neighbours;
}

// A group of this process alone.
std::unique_ptr<Group> SoloGroup();

// Collective. Tells every rank whether any of them has failed. If all `mine` are good, returns
// success. Otherwise a failing rank gets its own error back, and every other rank kPeerFailed with
// the number and the message of the lowest failing rank: "rank 3: x/data.mdb: no such file", or
// "rank 3 on node-7: x/data.mdb: no such file" where the group spans several hosts. The error keeps
// that rank's error_number(). A rank whose own error is kPeerFailed has only heard of a failure; it
// gets the message of a rank that has failed itself, if there is one.
// Errors: as described; kInternal  MPI failed
Status Agree(Group& group, Status mine);

// Collective. `mine`, where every rank has made one: what some ranks cannot have, none has.
// Errors: as Agree
template <typename T>
Result<T> ForAll(Group& group, Result<T> mine) {
  Status status = mine ? Status() : Fail(std::move(mine).error());
  LMDBIO_TRY_VOID(Agree(group, std::move(status)));
  return mine;
}

// Collective. Whether all ranks say the same words.
// what  goes before them in an error: "the options"
// Errors: kInvalidArgument  this rank's differ from those of rank 0; has both
//         kPeerFailed       another rank's do; kInternal  MPI failed
Status AgreeOnWords(Group& group, std::string_view what, const std::string& mine);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_GROUP_GROUP_H_
