// Handlers of pthread_atfork hold the mutexes of the handle tables during a fork, so that the child
// gets them unlocked and the tables whole. No thread holds two of these mutexes, so their order
// does not matter.
#include "lmdbio/api/c/handle_table.h"

#include <pthread.h>

#include <array>
#include <atomic>

#include "lmdbio/base/check.h"

namespace lmdbio::api {
namespace {

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

}  // namespace

void HoldDuringFork(std::mutex& mutex) {
  // Registered once in the process; the system never removes the handlers.
  static const int kRegistered = ::pthread_atfork(&LockTables, &UnlockTables, &UnlockTables);
  LMDBIO_CHECK(kRegistered == 0);
  // Claims the first free place. Several tables may be created at once.
  for (auto& place : held) {
    std::mutex* none = nullptr;
    if (place.compare_exchange_strong(none, &mutex)) return;
  }
  LMDBIO_CHECK(false);
}

std::uintptr_t NextHandleNumber() { return last_handle.fetch_add(0x10) + 0x10; }

}  // namespace lmdbio::api
