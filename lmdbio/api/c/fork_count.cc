// A child of fork() finds out by a counter that it is one: a handler of pthread_atfork raises it.
// The handlers also hold the mutexes of the handle tables during the fork, so that the child gets
// them unlocked and the tables whole. No thread holds two of these mutexes, so their order does not
// matter.
#include "lmdbio/api/c/fork_count.h"

#include <pthread.h>

#include <array>
#include <atomic>

#include "lmdbio/base/check.h"

namespace lmdbio::api {
namespace {

std::atomic<uint64_t> fork_count = 0;
std::atomic<std::uintptr_t> last_handle = 0x1d0;  // programs make up smaller numbers

std::array<std::atomic<std::mutex*>, 8> held = {};

void LockTables() {
  for (const auto& mutex : held) {
    if (std::mutex* one = mutex.load()) one->lock();
  }
}

void UnlockTables() {
  for (const auto& mutex : held) {
    if (std::mutex* one = mutex.load()) one->unlock();
  }
}

void CountForkAndUnlock() {
  fork_count.fetch_add(1);
  UnlockTables();
}

// Registered once in the process; the system never removes the handlers.
void WatchForks() {
  static const int kRegistered = ::pthread_atfork(&LockTables, &UnlockTables, &CountForkAndUnlock);
  LMDBIO_CHECK(kRegistered == 0);
}

}  // namespace

uint64_t ForkCount() {
  WatchForks();
  return fork_count.load();
}

void HoldDuringFork(std::mutex& mutex) {
  WatchForks();
  // Claims the first free place. Several tables may be created at once.
  for (auto& place : held) {
    std::mutex* none = nullptr;
    if (place.compare_exchange_strong(none, &mutex)) return;
  }
  LMDBIO_CHECK(false);
}

std::uintptr_t NextHandleNumber() { return last_handle.fetch_add(0x10) + 0x10; }

}  // namespace lmdbio::api
