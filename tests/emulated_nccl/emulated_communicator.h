// tests/emulated_nccl/emulated_communicator.h - one rank of a communicator of the stand-in.
#ifndef LMDBIO_TESTS_EMULATED_NCCL_EMULATED_COMMUNICATOR_H_
#define LMDBIO_TESTS_EMULATED_NCCL_EMULATED_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "lmdbio/device/driver_table.h"
#include "lmdbio/sync/over_nccl/nccl_table.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_nccl/nccl_board.h"

namespace lmdbio::test {

// Codes of NCCL that lmdbio does not tell apart.
namespace nccl_codes {
inline constexpr sync::NcclCode kUnhandledCudaError = 1;
inline constexpr sync::NcclCode kInternalError = 3;
inline constexpr sync::NcclCode kInvalidArgument = 4;
inline constexpr sync::NcclCode kInvalidUsage = 5;
}  // namespace nccl_codes

// The stand-in for a driver.
const EmulatedControl& GpuControl();

// Keeps the words for ncclGetLastError. Returns the code.
sync::NcclCode FailWith(sync::NcclCode code, const char* words);
const char* LastWords();

// A call that goes on after it has returned.
struct PendingCall {
  std::function<sync::NcclCode()> step;  // kInProgress: not yet done
  int looks_left = 0;                    // before the first step
  sync::NcclCode fails_with = sync::nccl_code::kSuccess;
  bool is_endless = false;
};

// Not for several threads at once.
class EmulatedCommunicator {
 public:
  EmulatedCommunicator(std::shared_ptr<NcclBoard> board, int rank, int size, int device);

  // Begins a call. Returns: its state
  sync::NcclCode Begin(PendingCall call);
  // The state of the last call, which goes on.
  sync::NcclCode Look();
  void Fail(sync::NcclCode code) { state_ = code; }

  // Steps of calls.
  sync::NcclCode Meet() const;  // all ranks are there
  sync::NcclCode Finish() const;
  sync::NcclCode Enqueue(const char* name, const BoardCall& call, uint64_t from, uint64_t to,
                         device::StreamHandle stream);
  // The work that is enqueued ends, with other values.
  void Abort() { is_aborted_->store(true); }

 private:
  const std::shared_ptr<NcclBoard> board_;
  const int rank_;
  const int size_;
  const int device_;
  const std::shared_ptr<std::atomic<bool>> is_aborted_ = std::make_shared<std::atomic<bool>>(false);
  uint64_t call_count_ = 0;
  sync::NcclCode state_ = sync::nccl_code::kSuccess;
  PendingCall pending_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_NCCL_EMULATED_COMMUNICATOR_H_
