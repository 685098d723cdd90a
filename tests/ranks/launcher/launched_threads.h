// tests/ranks/launcher/launched_threads.h - ranks played by threads, that talk as those of a
// launcher do.
#ifndef LMDBIO_TESTS_RANKS_LAUNCHER_LAUNCHED_THREADS_H_
#define LMDBIO_TESTS_RANKS_LAUNCHER_LAUNCHED_THREADS_H_

#include <functional>

#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/group/thread_group.h"

namespace lmdbio::test {

// Whether LMDBIO_TEST_LAUNCHED is set.
bool IsLaunched();

// As ranks::RunAsThreads. If IsLaunched, the threads of one host meet at a port, and each has
// shared memory and links of its own; several hosts cannot be played so.
void RunAsThreadsOrLaunched(ranks::ThreadRanks ranks,
                            const std::function<void(ranks::Group& group)>& body);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_RANKS_LAUNCHER_LAUNCHED_THREADS_H_
