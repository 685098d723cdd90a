// lmdbio/ranks/group/thread_group.h - ranks played by the threads of one process.
//
// For tests: one debugger and one thread sanitizer see all ranks. Hosts are simulated: each
// `ranks_per_host` ranks in a row count as one host.
#ifndef LMDBIO_RANKS_GROUP_THREAD_GROUP_H_
#define LMDBIO_RANKS_GROUP_THREAD_GROUP_H_

#include <functional>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

struct ThreadRanks {
  int rank_count = 1;            // > 0
  int ranks_per_host = 1 << 20;  // > 0
};

// Runs `body` once for each rank, each in a thread of its own, and waits for all threads. If a rank
// returns while others wait for it in a collective call, this waits for ever.
// Requires: no exception leaves `body`
void RunAsThreads(ThreadRanks ranks, const std::function<void(Group& group)>& body);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_GROUP_THREAD_GROUP_H_
