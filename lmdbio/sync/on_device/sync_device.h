// lmdbio/sync/on_device/sync_device.h - the GPU of a synchronizer.
//
// Threads of the program have their tensors checked here, and the helper thread moves the values of
// tensors through the ring.
//
// Source: docs/device_sync.md.
#ifndef LMDBIO_SYNC_ON_DEVICE_SYNC_DEVICE_H_
#define LMDBIO_SYNC_ON_DEVICE_SYNC_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/kernels/kernel_image.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/on_device/device_tensor.h"
#include "lmdbio/sync/on_device/event_pool.h"
#include "lmdbio/sync/on_device/staging_ring.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// Which memories of a tensor an operation uses on this rank.
struct TensorUse {
  bool has_input = false;
  bool has_output = false;
};

// Threads: any, except MakeRing, ring, KeepAll, KeepOwnMemory and the destructor.
class SyncDevice {
 public:
  // The size of the pinned memory, and the bounds of a chunk in it.
  static constexpr uint64_t kStagingBytes = uint64_t{16} << 20;
  static constexpr uint64_t kChunkBytesMin = uint64_t{256} << 10;
  static constexpr uint64_t kChunkBytesMax = kStagingBytes / StagingRing::kSlotsMax;

  // Opens the driver and the GPU, and loads the kernels. If there are none for it, tensors are
  // packed by one copy each, and `note` has the reason.
  // ordinal  [>= 0]
  // Errors: as device::SystemDriver, device::Device::Open and kernels::DeviceKernels::Load
  static Result<std::unique_ptr<SyncDevice>> Open(
      int ordinal, const kernels::KernelImage& image = kernels::BuiltInKernels());

  // Pins memory for the ring. Once.
  // memory       [kStagingBytes] outlives this; too little: memory of this object
  // ample_bytes  Collectives::ample_bytes, the size of a chunk within the bounds above
  // health       outlives this
  // Errors: kResourceExhausted  no memory, or the host refuses to pin it
  //         and as StagingRing::Make
  Status MakeRing(MutableBytes memory, uint64_t ample_bytes, ranks::Health& health);
  bool has_ring() const { return ring_ != nullptr; }
  // Requires: has_ring
  StagingRing& ring() { return *ring_; }
  const StagingRing& ring() const { return *ring_; }

  // The memory behind a pointer of the program. Managed memory and that of other GPUs is kDevice,
  // too, and Enter refuses it.
  // Errors: as Device::Describe
  Result<MemoryKind> KindOf(const void* pointer) const;
  // Errors: kInvalidArgument  the memory is not that of this GPU, or too small for the tensor;
  //                           names the tensor, the pointer and its kind
  //         and as KindOf
  Status CheckOnDevice(const Request& request, device::DeviceAddress address) const;
  // Errors: kInvalidArgument  the memory is that of a GPU, or managed; and as KindOf
  Status CheckOnHost(const Request& request, const void* pointer) const;
  // Checks a tensor, and records the event behind which it can be used.
  // Errors: kInvalidArgument  as CheckOnDevice; the stream is of another GPU, or is captured
  Result<EventPtr> Enter(const Request& request, const DeviceTensor& tensor,
                         const TensorUse& use) const;

  // The GPU, the ring, and how tensors are packed.
  std::string Description() const;
  // Whether the GPU still works, as far as calls of any thread have shown.
  // Errors: kInternal  the driver's name for the reason
  Status Check() const { return device_->context()->CheckUsable(); }

  // Why there are no kernels; "": there are.
  const std::string& note() const { return note_; }

  // The GPU may still use the pinned memory: it lives until the process ends, with all that uses it
  // and belongs to this object.
  void KeepAll();
  // The GPU is done, but others may still write to the memory of this object: it lives until the
  // process ends.
  void KeepOwnMemory();

 private:
  SyncDevice() = default;

  std::shared_ptr<device::Device> device_;
  std::unique_ptr<kernels::DeviceKernels> kernels_;  // null: one copy each
  std::string note_;
  std::unique_ptr<EventPool> events_;
  std::unique_ptr<std::byte[]> own_memory_;
  std::unique_ptr<StagingRing> ring_;  // last: it uses all of the above
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ON_DEVICE_SYNC_DEVICE_H_
