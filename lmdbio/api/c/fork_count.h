// lmdbio/api/c/fork_count.h - whether this process is the one that something was made in.
//
// A child of fork() has the memory of its parent but none of its threads, and shares its file
// descriptors: what was open there can only be left alone here.
#ifndef LMDBIO_API_C_FORK_COUNT_H_
#define LMDBIO_API_C_FORK_COUNT_H_

#include <cstdint>
#include <mutex>

namespace lmdbio::api {

// How often this process has been forked since its ancestor asked first. Threads: any.
uint64_t ForkCount();

// Takes `mutex` before each fork of this process and gives it back behind, on both sides, so that
// no child finds it taken by a thread that it has not. Four at most.
// Lifetime: `mutex` must live for ever
void HoldDuringFork(std::mutex& mutex);

// Never the same twice in a process, never 0. Threads: any.
std::uintptr_t NextHandleNumber();

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_FORK_COUNT_H_
