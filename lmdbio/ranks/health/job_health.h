// lmdbio/ranks/health/job_health.h - signs of life between all ranks of a job.
//
// The ranks of a host watch each other in shared memory. The lowest rank of each host is its root.
// The roots form a tree. A root sends a sign of life to its neighbours in the tree, its parent and
// its children, and watches these neighbours alone. A failure that a root finds on its host or at a
// neighbour goes through the tree to all roots, and each root passes it to its host. So every rank
// reports a failure in the same words, and no root holds a connection to every other root.
//
// If roots die, the tree falls into parts. Each part borders on a dead root and finds it by itself.
//
// Source: docs/many_hosts.md "Health between hosts"; docs/sync.md "Failures".
#ifndef LMDBIO_RANKS_HEALTH_JOB_HEALTH_H_
#define LMDBIO_RANKS_HEALTH_JOB_HEALTH_H_

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/health/host_health.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::ranks {

// The children of a root in the tree, at most. 1,000 hosts make a tree of depth 3.
constexpr int kHealthChildrenMax = 16;

// How long a rank may be silent before its watcher reports it. The limit is shorter than
// `silence_limit` by the time that the report needs to cross the tree of `host_count` roots, but at
// most by a quarter.
// host_count  [> 0]
std::chrono::milliseconds WatchLimit(std::chrono::milliseconds silence_limit, int host_count);

// Threads: any.
class JobHealth final : public Health {
 public:
  // Collective over `group`. Each rank must call Check at least four times within the limit.
  // silence_limit  all ranks know of a silent rank after this time; time in which this rank did not
  //                call Check does not count
  // Errors: kResourceExhausted  no shared memory or no descriptors on this host
  //         kPeerFailed         a failure of another rank
  //         kIo                 the roots of two hosts cannot reach each other
  //         kInternal
  // Cost: of a root, two connections to its parent and to each of at most 16 children, and a
  //       message of 17 bytes to each of them, at most 2.5 times a second for limits from 2 s on
  static Result<std::unique_ptr<JobHealth>> Create(Group& group,
                                                   std::chrono::milliseconds silence_limit);

  // Leaves in good order, unless there has been a failure, which it passes on. A root that has left
  // forwards nothing, so all ranks should leave together.
  ~JobHealth() override;

  Status Check() override;
  void GiveUp(const Error& why) override;

 private:
  // A neighbour of this root in the tree.
  struct Neighbour {
    std::string name;  // "rank 4 on node-7"
    std::chrono::nanoseconds silence{0};
    bool has_left = false;
  };

  JobHealth() = default;
  Status JoinTree(Group& roots, int known_as);
  void SendToNeighbours(std::string_view message);
  void PassOnFailure();
  std::string FindFailure();
  std::string ReceiveFrom(int root, Neighbour& neighbour);

  std::chrono::milliseconds watch_limit_{0};
  std::unique_ptr<HostHealth> host_;
  std::mutex mutex_;                     // of all below
  std::unique_ptr<PeerLinks> links_;     // null: one host, or not a root
  std::map<int, Neighbour> neighbours_;  // by rank among the roots
  bool is_passed_on_ = false;
  std::chrono::steady_clock::time_point last_look_{};
  std::chrono::steady_clock::time_point last_sign_{};
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_HEALTH_JOB_HEALTH_H_
