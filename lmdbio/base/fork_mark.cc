// A child of fork() finds out by a counter that it is one: a handler of pthread_atfork raises it.
#include "lmdbio/base/fork_mark.h"

#include <pthread.h>

#include <atomic>

#include "lmdbio/base/check.h"

namespace lmdbio {
namespace {

std::atomic<uint64_t> fork_count = 0;

void CountFork() { fork_count.fetch_add(1); }

}  // namespace

// Registered once in the process; the system never removes the handler.
uint64_t ForkCount() {
  static const int kRegistered = ::pthread_atfork(nullptr, nullptr, &CountFork);
  LMDBIO_CHECK(kRegistered == 0);
  return fork_count.load();
}

}  // namespace lmdbio
