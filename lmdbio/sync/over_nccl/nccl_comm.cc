#include "lmdbio/sync/over_nccl/nccl_comm.h"

#include <bit>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/base/types.h"
#include "lmdbio/sync/over_device/event_wait.h"

namespace lmdbio::sync {
namespace {

using device::DeviceStream;
using Clock = std::chrono::steady_clock;

NcclType TypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return NcclType::kFloat32;
    case DataType::kFloat64:
      return NcclType::kFloat64;
    case DataType::kFloat16:
      return NcclType::kFloat16;
    case DataType::kBFloat16:
      return NcclType::kBFloat16;
    case DataType::kInt32:
      return NcclType::kInt32;
    case DataType::kInt64:
      return NcclType::kInt64;
  }
  LMDBIO_CHECK(false);
}

NcclOp OpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return NcclOp::kSum;
    case ReduceOp::kMin:
      return NcclOp::kMin;
    case ReduceOp::kMax:
      return NcclOp::kMax;
    case ReduceOp::kProduct:
      return NcclOp::kProduct;
  }
  LMDBIO_CHECK(false);
}

void* PointerTo(device::DeviceAddress address) { return std::bit_cast<void*>(address.value); }

// NCCL sees the end of another rank as one of these, and may see it before the health does.
bool MayBePeer(NcclCode code) {
  return code == nccl_code::kRemoteError || code == nccl_code::kSystemError;
}

}  // namespace

// A rank that fails here never meets the others in NCCL, where they would wait for it.
Result<std::unique_ptr<NcclComm>> NcclComm::Make(ranks::Group& group, NcclCommSetup setup) {
  std::unique_ptr<NcclComm> comm(new NcclComm(std::move(setup)));
  NcclId id = {};
  Status made;
  if (group.rank() == 0) {
    made = comm->Run("ncclGetUniqueId", [&id](const NcclTable& nccl, NcclCommHandle&) {
      return nccl.GetUniqueId(&id);
    });
  }
  LMDBIO_TRY_VOID(ranks::Agree(group, std::move(made)));
  LMDBIO_TRY_VOID(group.Broadcast(0, std::as_writable_bytes(std::span(&id, 1))));
  NcclConfig config;
  Status begun =
      comm->Run("ncclCommInitRankConfig", [&](const NcclTable& nccl, NcclCommHandle& handle) {
        return nccl.CommInitRankConfig(&handle, group.size(), id, group.rank(), &config);
      });
  if (!begun) comm->setup_.give_up(begun.error());
  LMDBIO_TRY_VOID(ranks::Agree(group, std::move(begun)));
  return comm;
}

// NCCL takes the device of the current context for its own. The codes of NCCL are other ones than
// those of the driver, so the context does not see them.
template <typename Call>
Result<NcclCode> NcclComm::Enter(std::string_view what, Call&& call) {
  const std::lock_guard lock(mutex_);
  if (has_ended_.load()) {
    return Fail(ErrorCode::kPeerFailed, fmt::format("{}: the communicator is aborted", what));
  }
  NcclCode code = nccl_code::kSuccess;
  LMDBIO_TRY_VOID(setup_.context->Try(what, [&](const device::DriverTable&) {
    code = call(setup_.table, handle_);
    return device::driver_code::kSuccess;
  }));
  return code;
}

Result<NcclCode> NcclComm::State() {
  return Enter("ncclCommGetAsyncError", [](const NcclTable& nccl, NcclCommHandle handle) {
    NcclCode state = nccl_code::kSuccess;
    const NcclCode code = nccl.CommGetAsyncError(handle, &state);
    return code == nccl_code::kSuccess ? state : code;
  });
}

template <typename Call>
Status NcclComm::Run(std::string_view what, Call&& call) {
  LMDBIO_TRY(NcclCode code, Enter(what, std::forward<Call>(call)));
  const auto is_settled = [&]() -> Result<bool> {
    if (code != nccl_code::kInProgress) return true;
    LMDBIO_TRY(code, State());
    return code != nccl_code::kInProgress;
  };
  LMDBIO_TRY_VOID(LookUntil(is_settled, Clock::time_point::max(), setup_.check));
  if (code == nccl_code::kSuccess) return {};
  if (MayBePeer(code)) {
    const auto is_known = [] { return false; };
    LMDBIO_TRY_VOID(LookUntil(is_known, Clock::now() + ranks::kReasonLimit, setup_.check));
  }
  return Fail(ErrorOf(what, code));
}

// NCCL keeps the words of the last error for the whole process.
Error NcclComm::ErrorOf(std::string_view what, NcclCode code) const {
  const char* const last = setup_.table.GetLastError(nullptr);
  const bool has_words = last != nullptr && *last != '\0';
  return {ErrorCode::kInternal, fmt::format("GPU {}: {}: NCCL: {}{}{}", setup_.context->ordinal(),
                                            what, setup_.table.GetErrorString(code),
                                            has_words ? ": " : "", has_words ? last : "")};
}

Status NcclComm::AllReduce(const DeviceArray& values, ReduceOp op, DeviceStream& stream) {
  if (values.count == 0) return {};
  void* const place = PointerTo(values.begin);
  return Run("ncclAllReduce", [&](const NcclTable& nccl, NcclCommHandle handle) {
    return nccl.AllReduce(place, place, values.count, TypeOf(values.type), OpOf(op), handle,
                          stream.native());
  });
}

Status NcclComm::Broadcast(const device::DeviceSpan& bytes, int root, DeviceStream& stream) {
  if (bytes.size_bytes == 0) return {};
  void* const place = PointerTo(bytes.begin);
  return Run("ncclBroadcast", [&](const NcclTable& nccl, NcclCommHandle handle) {
    return nccl.Broadcast(place, place, bytes.size_bytes, NcclType::kByte, root, handle,
                          stream.native());
  });
}

Status NcclComm::Check() {
  if (has_ended_.load()) return {};
  LMDBIO_TRY(const NcclCode state, State());
  if (state == nccl_code::kSuccess || state == nccl_code::kInProgress) return {};
  {
    const std::lock_guard lock(mutex_);
    if (!failed_since_) failed_since_ = Clock::now();
    if (Clock::now() - *failed_since_ < ranks::kReasonLimit) return {};
  }
  return Fail(ErrorOf("work on the stream", state));
}

// A child of fork() cannot use the mutex, which a thread of its parent may have held.
void NcclComm::Abort() {
  if (!setup_.context->CheckUsable()) return;
  const std::lock_guard lock(mutex_);
  if (has_ended_.exchange(true)) return;
  is_aborted_.store(true);  // before streams go on
  if (handle_ == nullptr) return;
  static_cast<void>(setup_.context->Try("ncclCommAbort", [this](const device::DriverTable&) {
    setup_.table.CommAbort(handle_);
    return device::driver_code::kSuccess;
  }));
}

Status NcclComm::Leave() {
  LMDBIO_TRY_VOID(Run("ncclCommFinalize", [](const NcclTable& nccl, NcclCommHandle handle) {
    return nccl.CommFinalize(handle);
  }));
  LMDBIO_TRY(const NcclCode code,
             Enter("ncclCommDestroy", [this](const NcclTable& nccl, NcclCommHandle handle) {
               has_ended_.store(true);
               return nccl.CommDestroy(handle);
             }));
  if (code == nccl_code::kSuccess || code == nccl_code::kInProgress) return {};
  return Fail(ErrorOf("ncclCommDestroy", code));
}

}  // namespace lmdbio::sync
