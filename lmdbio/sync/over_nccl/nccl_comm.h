// lmdbio/sync/over_nccl/nccl_comm.h - a communicator of NCCL, whose waits end if a rank fails.
//
// Calls of NCCL do not wait: one that is not done yet says so, and this rank asks for its state
// until it is. So each wait can look at the health of the ranks.
//
// Source: docs/device_nccl.md.
#ifndef LMDBIO_SYNC_OVER_NCCL_NCCL_COMM_H_
#define LMDBIO_SYNC_OVER_NCCL_NCCL_COMM_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/device/primary_context.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/over_device/between_hosts.h"
#include "lmdbio/sync/over_device/result_state.h"
#include "lmdbio/sync/over_nccl/nccl_table.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

struct NcclCommSetup {
  NcclTable table;
  std::shared_ptr<device::PrimaryContext> context;  // of the GPU of this rank
  std::function<Status()> check;                    // called in waits; an error ends them
  // Called after a failure in Make: `check` of the other ranks then has this error.
  std::function<void(const Error& why)> give_up;
};

// Results are void after Abort.
// Threads: one at a time, except Abort, is_void and Check.
class NcclComm final : public ResultState {
 public:
  // Collective over `group`.
  // Errors: kInternal    NCCL fails, with its text for the reason
  //         kPeerFailed  another rank failed; has its message
  //         and those of the check
  static Result<std::unique_ptr<NcclComm>> Make(ranks::Group& group, NcclCommSetup setup);
  // As Abort, unless Leave was called.
  ~NcclComm() override { Abort(); }
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  // Collective. Returns when the call is enqueued on `stream`. Without elements there is none.
  // values  [alike on every rank but for the address] become the reduction of those of all ranks
  // Errors: kInternal    NCCL fails, with its text for the reason
  //         kPeerFailed  the communicator is aborted; and those of the check
  Status AllReduce(const DeviceArray& values, ReduceOp op, device::DeviceStream& stream);
  // The same for bytes, which become those of rank `root`.
  // Errors: as AllReduce
  Status Broadcast(const device::DeviceSpan& bytes, int root, device::DeviceStream& stream);

  // Whether the work that is enqueued can still be done. Does not wait.
  // Errors: kInternal  NCCL has failed ranks::kReasonLimit ago; until then the health may name the
  //                    rank that is the reason
  // Threads: any
  Status Check();

  // Ends the work that is enqueued, whose results are void, and all later calls of this rank.
  // Other ranks may wait for it until they abort, too.
  // Threads: any
  void Abort();
  bool is_void() const override { return is_aborted_.load(); }

  // Collective, after the last call. Requires: all work is done
  // Errors: as AllReduce
  Status Leave();

 private:
  explicit NcclComm(NcclCommSetup setup) : setup_(std::move(setup)) {}

  // Calls `call(table, handle)` with the context of the GPU.
  // Errors: kPeerFailed  the communicator has ended; and as PrimaryContext::Try
  template <typename Call>
  Result<NcclCode> Enter(std::string_view what, Call&& call);
  Result<NcclCode> State();
  // The same, and waits until the call is done.
  // Errors: as AllReduce
  template <typename Call>
  Status Run(std::string_view what, Call&& call);
  Error ErrorOf(std::string_view what, NcclCode code) const;

  const NcclCommSetup setup_;
  std::atomic<bool> is_aborted_{false};
  std::atomic<bool> has_ended_{false};
  std::mutex mutex_;  // of the members below
  NcclCommHandle handle_ = nullptr;
  std::optional<std::chrono::steady_clock::time_point> failed_since_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_NCCL_NCCL_COMM_H_
