// lmdbio/api/c/sync_handles.h - the objects behind the handles of lmdbio_sync.h, which several
// threads may use at once.
#ifndef LMDBIO_API_C_SYNC_HANDLES_H_
#define LMDBIO_API_C_SYNC_HANDLES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "lmdbio/api/c/c_sync_options.h"
#include "lmdbio/api/c/fork_count.h"
#include "lmdbio/api/c/handle_table.h"
#include "lmdbio/api/c/handles.h"
#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::api {

// The last failure and the last results of one thread on a handle.
struct ThreadResults {
  std::string message;
  int error_number = 0;
  std::string description;
  std::string record;
  lmdbio_sync_counters counters = {};
};

// The state of a handle that several threads may use at once.
class SharedHandleState {
 public:
  bool is_forked() const { return fork_count_ != ForkCount(); }

  // The results of the calling thread. Must not be called in a child of fork(): a thread of the
  // parent may have held the mutex during the fork.
  ThreadResults& lent() {
    const std::lock_guard lock(mutex_);
    return lent_[std::this_thread::get_id()];
  }

  // Runs `call` at once: the objects support several threads, so calls need not take turns.
  template <typename Call>
  int InTurn(Call&& call) {
    return call();
  }

  int Keep(const Error& error) {
    return Keep(static_cast<int>(error.code()), error.message(), error.error_number());
  }
  int Keep(int status, std::string text, int number = 0) {
    if (is_forked()) return status;
    ThreadResults& mine = lent();
    mine.message = std::move(text);
    mine.error_number = number;
    return status;
  }
  // Allocates nothing: memory may have run out.
  void Forget(int number) {
    if (is_forked()) return;
    const std::lock_guard lock(mutex_);
    const auto found = lent_.find(std::this_thread::get_id());
    if (found == lent_.end()) return;
    found->second.message.clear();
    found->second.error_number = number;
  }
  const char* LastWords() { return is_forked() ? kForkedWords : lent().message.c_str(); }
  int LastErrorNumber() { return is_forked() ? 0 : lent().error_number; }

 private:
  const uint64_t fork_count_ = ForkCount();
  std::mutex mutex_;
  std::unordered_map<std::thread::id, ThreadResults> lent_;  // its elements never move
};

struct SyncHandle : SharedHandleState {
  const std::uintptr_t number = NextHandleNumber();  // for callbacks, which have no handle
  // Calls hold it shared; closing takes it exclusively.
  std::shared_mutex closing;
  std::string options;                               // as JSON; set before the handle is returned
  std::unique_ptr<ranks::Group> group;               // before the synchronizer, which it outlives
  std::unique_ptr<sync::Synchronizer> synchronizer;  // null if it could not be made, or is closed

  // Leaks the objects in a child of fork(): their destructors would disturb the parent.
  void LeaveAlone() {
    static_cast<void>(synchronizer.release());
    static_cast<void>(group.release());
  }
};

struct OpHandle : SharedHandleState {
  std::uintptr_t owner = 0;  // number of the synchronizer
  std::unique_ptr<sync::Handle> handle;
  std::once_flag has_result;
  lmdbio_sync_result result = {};

  bool is_open() const { return handle != nullptr; }
  void LeaveAlone() { static_cast<void>(handle.release()); }
};

using SyncTable = HandleTable<lmdbio_sync, SyncHandle>;
using OpTable = HandleTable<lmdbio_sync_op, OpHandle>;

// Makes the parts of `choice` that use MPI. Collective for every choice.
using SyncPartsMaker =
    std::function<Status(ranks::Group& group, const SyncChoice& choice, sync::SyncParts& parts)>;

// Opens a synchronizer in a group, as lmdbio_sync_open, and takes ownership of the group. Only for
// liblmdbio_mpi of the same version.
// maker  empty: there is no MPI
LMDBIO_API int OpenSyncInGroup(Result<std::unique_ptr<ranks::Group>>& group,
                               const lmdbio_sync_options* options, const SyncPartsMaker& maker,
                               lmdbio_sync** out_sync) noexcept;

}  // namespace lmdbio::api
#endif  // LMDBIO_API_C_SYNC_HANDLES_H_
