// lmdbio/ranks/group/thread_group.h - ranks played by the threads of one process.
//
// For tests: what several processes do to each other happens here under one debugger and one thread
// sanitizer. Hosts are made up: `ranks_per_host` neighbours count as one.
#ifndef LMDBIO_RANKS_GROUP_THREAD_GROUP_H_
#define LMDBIO_RANKS_GROUP_THREAD_GROUP_H_

#include <functional>

#include "lmdbio/ranks/group/group.h"

namespace lmdbio::ranks {

struct ThreadRanks {
  int rank_count = 1;            // > 0
  int ranks_per_host = 1 << 20;  // > 0
};

// Runs `body` once for each rank, each on a thread of its own, and waits for all of them. A rank
// that returns while others still wait for it in a collective call makes this wait for ever.
// Requires: no exception leaves `body`
void RunAsThreads(ThreadRanks ranks, const std::function<void(Group& group)>& body);

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_GROUP_THREAD_GROUP_H_
