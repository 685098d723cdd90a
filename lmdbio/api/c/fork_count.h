// lmdbio/api/c/fork_count.h - detects objects that were created before a fork of this process.
//
// A child of fork() has the memory of its parent but none of its threads, and shares its file
// descriptors. The child therefore must not use, nor destroy, the open objects of its parent.
#ifndef LMDBIO_API_C_FORK_COUNT_H_
#define LMDBIO_API_C_FORK_COUNT_H_

#include <cstdint>
#include <mutex>

namespace lmdbio::api {

// Returns the number of forks between the process that called this first and this process.
// Threads: any.
uint64_t ForkCount();

// Remembers the process that made an object. Threads: any.
class ForkMark {
 public:
  // Whether this process is a child, by fork(), of the one that made the object.
  bool is_forked() const { return fork_count_ != ForkCount(); }

 private:
  uint64_t fork_count_ = ForkCount();
};

// Locks `mutex` before each fork of this process, and unlocks it afterwards in parent and child. So
// no child inherits a mutex that is locked by a thread which the child lacks. At most eight
// mutexes.
// Lifetime: `mutex` must never be destroyed
void HoldDuringFork(std::mutex& mutex);

// Returns a number that is unique in the process, and never 0. Threads: any.
std::uintptr_t NextHandleNumber();

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_FORK_COUNT_H_
