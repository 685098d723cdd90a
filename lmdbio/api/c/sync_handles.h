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
#include <utility>
#include <vector>

#include "lmdbio/api/c/c_sync_options.h"
#include "lmdbio/api/c/handle_table.h"
#include "lmdbio/api/c/handles.h"
#include "lmdbio/api/c/shared_handle.h"
#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::api {

// The memory that a lmdbio_sync_compute_order points to.
struct LentComputeOrder {
  std::vector<uint32_t> gradients;
  std::vector<uint32_t> nodes;
  std::vector<uint32_t> edges;  // pairs
  lmdbio_sync_compute_order order = {};
};

// The last failure and the last results of one thread on a handle.
struct SyncResults : ThreadFailure {
  std::string description;
  std::string record;
  lmdbio_sync_counters counters = {};
  LentComputeOrder compute_order;
};

struct SyncHandle : SharedHandleState<SyncResults> {
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

struct OpHandle : SharedHandleState<ThreadFailure> {
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
