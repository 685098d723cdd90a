// lmdbio/sync/on_device/sync_device.h - the GPU of a synchronizer.
//
// Threads of the program have their tensors checked here. The helper thread moves the values of
// tensors through the ring, or through the arena if the ranks reduce on their GPUs.
//
// Source: docs/device_sync.md, docs/device_collectives.md.
#ifndef LMDBIO_SYNC_ON_DEVICE_SYNC_DEVICE_H_
#define LMDBIO_SYNC_ON_DEVICE_SYNC_DEVICE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_memory.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/kernels/kernel_image.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/ranks/health/health.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/on_device/arena_mover.h"
#include "lmdbio/sync/on_device/device_tensor.h"
#include "lmdbio/sync/on_device/device_waits.h"
#include "lmdbio/sync/on_device/event_pool.h"
#include "lmdbio/sync/on_device/staging_ring.h"
#include "lmdbio/sync/over_device/arena_collectives.h"
#include "lmdbio/sync/over_device/stream_order.h"
#include "lmdbio/sync/over_library/blocking_library.h"
#include "lmdbio/sync/over_wire/wire_choice.h"
#include "lmdbio/sync/request/gradient_places.h"
#include "lmdbio/sync/request/request.h"

namespace lmdbio::sync {

// Which memories of a tensor an operation uses on this rank.
struct TensorUse {
  bool has_input = false;
  bool has_output = false;
};

// How the values in arenas are reduced.
enum class ArenaWay : uint8_t {
  kKernels,  // by DeviceCollectives, if the ranks can map the memory of each other
  kNccl,     // by NcclCollectives
  kLibrary,  // by LibraryCollectives
};

// The memory of this GPU in which the ranks reduce:
//
//   | placed gradients | buffer, into which other tensors are packed |
//
// The same on every rank.
struct SyncArenaOptions {
  uint64_t gradient_bytes = 0;
  uint64_t buffer_bytes = 0;  // [> 0]
  OrderKind order = OrderKind::kHost;
  uint64_t one_shot_bytes = 0;  // DeviceCollectiveOptions::one_shot_bytes
  ArenaWay way = ArenaWay::kKernels;
  std::shared_ptr<BlockingLibrary> library = nullptr;  // of kLibrary
};

// Threads: any, except those of the helper thread, and what makes and ends the object.
class SyncDevice {
 public:
  // The size of the pinned memory, and the bounds of a chunk in it.
  static constexpr uint64_t kStagingBytes = uint64_t{16} << 20;
  static constexpr uint64_t kChunkBytesMin = uint64_t{256} << 10;
  static constexpr uint64_t kChunkBytesMax = kStagingBytes / StagingRing::kSlotsMax;
  // The parts of an arena begin at its multiples.
  static constexpr uint64_t kPartBytes = 256;

  // Opens the driver and the GPU, and loads the kernels. If there are none for it, tensors are
  // packed by one copy each, and a note has the reason.
  // ordinal  [>= 0]
  // check    as Device::Open
  // Errors: as device::SystemDriver, device::Device::Open and kernels::DeviceKernels::Load
  static Result<std::unique_ptr<SyncDevice>> Open(
      int ordinal, const kernels::KernelImage& image = kernels::BuiltInKernels(),
      device::CacheCheck check = device::CacheCheck::kBufferId);

  // Pins memory for the ring. Once.
  // memory       [kStagingBytes] outlives this; too little: memory of this object
  // ample_bytes  Collectives::ample_bytes, the size of a chunk within the bounds above
  // health       outlives this; checked in each wait
  // Errors: kResourceExhausted  no memory, or the host refuses to pin it
  //         and as StagingRing::Make
  Status MakeRing(MutableBytes memory, uint64_t ample_bytes, ranks::Health& health);
  bool has_ring() const { return ring_ != nullptr; }
  // Collective over `group`. Makes the arena, if the ranks can reduce on their GPUs. Once, after
  // MakeRing. With kNccl and kLibrary the ranks fail if they cannot.
  // meetings  of the same ranks; outlive this
  // table     of messages between hosts
  // health    as in MakeRing
  // Errors: as ArenaMover::Make; and as DeviceCollectives::Make, OpenLinkWire and
  //         DeviceWire::Make, or as NcclCollectives::Make, or as LibraryCollectives::Make
  Status MakeArena(ranks::Group& group, Collectives& meetings, const SyncArenaOptions& options,
                   const WireTable& table, ranks::Health& health);
  // Makes the memory of Place: that of the arena, or memory of this object without one. Once, after
  // MakeArena.
  // size_bytes  SyncArenaOptions::gradient_bytes
  // Errors: as Device::Allocate
  Status MakeGradients(uint64_t size_bytes);

  // --- Of the helper thread. Requires: has_ring
  StagingRing& ring() { return *ring_; }
  const StagingRing& ring() const { return *ring_; }
  const DeviceWaits& waits() const { return *waits_; }
  // Null: values pass through the ring. Else collectives() are those of the arena.
  ArenaMover* arena() { return arena_.get(); }
  const ArenaMover* arena() const { return arena_.get(); }
  ArenaCollectives& collectives() { return *collectives_; }
  // The offset in the arena of tensors that lie in placed memory as in a fusion buffer, so that
  // they can be reduced there; none: they must be packed into the buffer.
  // addresses, offsets  as GradientPlaces::Hold
  std::optional<uint64_t> OffsetOfPlaced(std::span<const Request> requests,
                                         std::span<const uint64_t> addresses,
                                         std::span<const uint64_t> offsets) const;
  // That of the buffer in the arena.
  uint64_t buffer_offset() const { return buffer_offset_; }
  // Waits for all work of the ring and the arena.
  // Errors: as DeviceWaits::AwaitDone
  Status AwaitAll() const;
  // The same without the health, and not for longer. False: not done at `until`, or unknown because
  // the driver fails. Then all that the work uses must stay.
  bool Drain(std::chrono::steady_clock::time_point until) const;
  // Collective: the ranks are done with the arenas of the others. Requires: AwaitAll
  // Errors: as DeviceCollectives::LeaveInPeace
  Status LeaveInPeace();

  // --- Of any thread. Requires: has_ring
  // Ends each wait of the helper thread soon, now and later. `why` is told to other hosts.
  void Stop(const Error& why);
  // After a failure of any rank: streams do not wait for others any more.
  void Poison();

  // Hands out a part of the memory of MakeGradients. Requires: MakeGradients
  // Errors: as GradientPlaces::Take
  Result<device::DeviceSpan> Place(uint64_t size_bytes);

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

  // The GPU, the ring, how tensors are packed, and the arena, as lines.
  std::vector<std::string> Description() const;
  // Whether the GPU and the way of the arena still work, as far as calls of any thread have shown.
  // Errors: kInternal  the driver's name for the reason; and as ArenaCollectives::Check
  Status Check() const;

  // A line for each thing that is not as wanted.
  const std::vector<std::string>& notes() const { return notes_; }

  // The GPU may still use the pinned memory and the arena: they live until the process ends, with
  // all that uses them and belongs to this object.
  void KeepAll();
  // The GPU is done, but others may still write to the memory of this object: it lives until the
  // process ends.
  void KeepOwnMemory();

 private:
  SyncDevice() = default;

  Result<bool> IsIdle() const;
  // As MakeArena.
  Result<std::unique_ptr<ArenaCollectives>> MakeCollectives(ranks::Group& group,
                                                            Collectives& meetings,
                                                            const SyncArenaOptions& options,
                                                            const WireTable& table,
                                                            ranks::Health& health);

  std::shared_ptr<device::Device> device_;
  std::unique_ptr<kernels::DeviceKernels> kernels_;  // null: one copy each
  std::vector<std::string> notes_;
  std::unique_ptr<EventPool> events_;
  std::unique_ptr<DeviceWaits> waits_;
  std::unique_ptr<std::byte[]> own_memory_;
  std::optional<device::DeviceMemory> own_gradients_;  // without an arena
  std::unique_ptr<GradientPlaces> places_;
  // Those below use all of the above.
  std::unique_ptr<StagingRing> ring_;
  std::unique_ptr<ArenaCollectives> collectives_;  // null: the ranks do not reduce on their GPUs
  std::unique_ptr<ArenaMover> arena_;              // null as collectives_
  uint64_t buffer_offset_ = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ON_DEVICE_SYNC_DEVICE_H_
