// lmdbio/base/fork_mark.h - detects objects that were made before a fork of this process.
//
// A child of fork() has the memory of its parent but none of its threads, and shares its file
// descriptors. The child therefore must not use, nor destroy, the open objects of its parent.
#ifndef LMDBIO_BASE_FORK_MARK_H_
#define LMDBIO_BASE_FORK_MARK_H_

#include <cstdint>

namespace lmdbio {

// The number of forks between the process that called this first and this process.
// Threads: any
uint64_t ForkCount();

// Remembers the process that made an object. Threads: any
class ForkMark {
 public:
  // Whether this process is a child, by fork(), of the one that made the object.
  bool is_forked() const { return fork_count_ != ForkCount(); }

 private:
  uint64_t fork_count_ = ForkCount();
};

}  // namespace lmdbio
#endif  // LMDBIO_BASE_FORK_MARK_H_
