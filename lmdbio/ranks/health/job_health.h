// lmdbio/ranks/health/job_health.h - signs of life between all ranks of a job.
//
// The ranks of a host watch each other in memory that they share. The lowest rank of each host, its
// root, sends a short message to the other roots every so often while it looks at its own host, and
// passes on what goes wrong there. So a host that is silent is found by all others, and every rank
// hears of a failure in the same words.
//
// Source: docs/sync.md "Failures".
#ifndef LMDBIO_RANKS_HEALTH_JOB_HEALTH_H_
#define LMDBIO_RANKS_HEALTH_JOB_HEALTH_H_

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/ranks/health/host_health.h"
#include "lmdbio/ranks/net/peer_links.h"

namespace lmdbio::ranks {

// Threads: any.
class JobHealth final : public Health {
 public:
  // Collective over `group`. Each rank must call Check at least four times within the limit.
  // silence_limit  of a rank that has failed; time in which this rank did not look does not count
  // Errors: kResourceExhausted  no shared memory on this host
  //         kPeerFailed         none on another
  //         kIo                 the roots of two hosts cannot reach each other
  //         kInternal
  // Cost: of a root, two connections to each other root, and a few bytes to it twice a second
  static Result<std::unique_ptr<JobHealth>> Create(Group& group,
                                                   std::chrono::milliseconds silence_limit);

  // Leaves in good order, unless there has been a failure, which it passes on.
  ~JobHealth() override;

  Status Check() override;
  void GiveUp(const Error& why) override;

 private:
  // The root of another host.
  struct Root {
    std::string name;  // "rank 4 on node-7"
    std::chrono::nanoseconds silence{0};
    bool has_left = false;
  };

  JobHealth() = default;
  void Say(std::string_view message);
  void PassOn();
  std::string Look();
  std::string Hear(int number, Root& root);

  std::chrono::milliseconds silence_limit_{0};
  std::unique_ptr<HostHealth> host_;
  std::mutex mutex_;                  // of all below
  std::unique_ptr<PeerLinks> links_;  // null: one host, or not a root
  std::map<int, Root> roots_;         // the others, by rank among roots
  bool is_passed_on_ = false;
  std::chrono::steady_clock::time_point last_look_{};
  std::chrono::steady_clock::time_point last_sign_{};
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_HEALTH_JOB_HEALTH_H_
