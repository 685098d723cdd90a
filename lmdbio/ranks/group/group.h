// lmdbio/ranks/group/group.h - the processes that work together; independent of MPI.
//
// A group is an ordered set of ranks that make the same calls in the same order. Other rooms use
// this interface only. A group is one of these:
//
//   SoloGroup      this process alone
//   MpiGroup       the ranks of an MPI communicator (ranks/mpi/mpi_group.h)
//   LaunchedGroup  ranks that a launcher has started, without MPI
//                  (ranks/launcher/launched_group.h)
//   RunAsThreads   threads that play ranks, for tests (ranks/group/thread_group.h)
//
// "Collective" means: every rank of the group makes the call, in the same order relative to its
// other collective calls. The ranks agree on a failure that only one rank can see before the next
// collective call (Agree), or they would wait for each other for ever.
//
// Source: dissertation 3.2.1 (finding the processes that share a host); docs/loader.md "Ranks".
#ifndef LMDBIO_RANKS_GROUP_GROUP_H_
#define LMDBIO_RANKS_GROUP_GROUP_H_

#include <algorithm>
#include <chrono>
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

// How long a rank that has noticed the end of another one waits to be told which rank ended first.
constexpr auto kReasonLimit = std::chrono::seconds(1);

// Threads: one at a time in each rank.
// Lifetime: groups and memory made from a group may outlive it.
class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;  // 0 <= rank() < size()
  virtual int size() const = 0;

  // The name of this rank's host, for messages, if the group spans several hosts; otherwise "".
  virtual const std::string& host_name() const = 0;

  // A weakness of this group that its users should know; "" if there is none.
  virtual std::string_view note() const { return ""; }

  // Collective. Returns when every rank has called it. All ranks then see the bytes that any rank
  // wrote to shared memory before the call.
  // Errors: kInternal  MPI failed, with its message
  virtual Status Barrier() = 0;

  // Collective. Copies `bytes` of rank `root` into `bytes` of every other rank.
  // root   [0 <= root < size(); the same on every rank]
  // bytes  [the same size on every rank; any size]
  // Errors: as Barrier
  virtual Status Broadcast(int root, MutableBytes bytes) = 0;

  // Collective. Returns `mine` of all ranks, in rank order.
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
  // Ranks that are processes get a file in memory (host_memory.h). If the system refuses that, they
  // get an MPI window, and the memory has a note.
  // size_bytes  [the same on every rank; may be 0]
  // Errors: kResourceExhausted  not so much shared memory, the same error on every rank; names the
  //                             available amount and the remedy
  //         kInvalidArgument    the ranks do not share memory, or request different sizes
  //         kInternal           MPI failed, with its message
  // Cost: pages are allocated at their first touch, near the rank that touches them
  virtual Result<std::unique_ptr<SharedMemory>> AllocateShared(uint64_t size_bytes) = 0;

  // Collective. As AllocateShared, in a window of MPI's (MPI_Win_allocate_shared), which needs room
  // in /dev/shm. The same as AllocateShared in groups without MPI, and of one rank.
  // Errors: as AllocateShared
  virtual Result<std::unique_ptr<SharedMemory>> AllocateMpiWindow(uint64_t size_bytes) {
    return AllocateShared(size_bytes);
  }

  // Not collective, and does not wait. Looks for a rank of the job that has ended, as far as the
  // group notices it between collective calls: groups of a launcher do (ranks/launcher), others
  // leave it to MPI.
  // Errors: kPeerFailed  a rank has ended; names it
  // Threads: any
  virtual Status CheckRanks() { return {}; }

  // The same after at most `limit`, for a caller that knows by other means that a rank has ended. A
  // rank that gives up before the group knows is itself taken for the one that has ended.
  // Errors: as CheckRanks
  // Threads: any
  virtual Status CheckRanksWithin(std::chrono::milliseconds limit) {
    static_cast<void>(limit);
    return {};
  }
};

// The ranks `step` places after and before this one, in a cycle of all ranks.
// step  [0 < step <= size()]
inline int RankBehind(const Group& group, int step = 1) {
  return (group.rank() + step) % group.size();
}
inline int RankBefore(const Group& group, int step = 1) {
  return (group.rank() + group.size() - step) % group.size();
}

// The parent and the children of this rank in a tree of all ranks, with rank 0 at the root.
struct TreeNeighbours {
  std::optional<int> parent;
  std::vector<int> children;
};
// rank, size       of this rank and of the tree
// child_count_max  [> 0] children of one rank
inline TreeNeighbours NeighboursInTree(int rank, int size, int child_count_max) {
  TreeNeighbours neighbours;
  if (rank > 0) neighbours.parent = (rank - 1) / child_count_max;
  const int64_t first = int64_t{child_count_max} * rank + 1;
  const int64_t end = std::min<int64_t>(first + child_count_max, size);
  for (int64_t child = first; child < end; ++child) {
    neighbours.children.push_back(static_cast<int>(child));
  }
  return neighbours;
}
inline TreeNeighbours NeighboursInTree(const Group& group, int child_count_max) {
  return NeighboursInTree(group.rank(), group.size(), child_count_max);
}

// A group of this process alone.
std::unique_ptr<Group> SoloGroup();

// Collective. All ranks learn whether any rank has failed. Returns success if all `mine` are
// successes. Otherwise a failed rank gets its own error back, and every other rank gets kPeerFailed
// with the number and the message of the lowest failed rank: "rank 3: x/data.mdb: no such file", or
// "rank 3 on node-7: x/data.mdb: no such file" if the group spans several hosts. The error keeps
// the error_number() of that rank. A rank whose own error is kPeerFailed knows only that another
// rank failed. It gets the message of a rank with a failure of its own, if there is one.
// Errors: as described; kInternal  MPI failed
Status Agree(Group& group, Status mine);

// Collective. Returns `mine` if every rank has a value. If a rank has an error, all ranks fail.
// Errors: as Agree
template <typename T>
Result<T> ForAll(Group& group, Result<T> mine) {
  Status status = mine ? Status() : Fail(mine.error().Copy());
  LMDBIO_TRY_VOID(Agree(group, std::move(status)));
  return mine;
}

// Collective. Succeeds if `mine` is the same text on all ranks.
// what  their name in an error, in the plural: "the options"
// Errors: kInvalidArgument  the text of this rank differs from that of rank 0; contains both
//         kPeerFailed       the text of another rank differs; kInternal  MPI failed
Status AgreeOnWords(Group& group, std::string_view what, const std::string& mine);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_GROUP_GROUP_H_
