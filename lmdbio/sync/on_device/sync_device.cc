#include "lmdbio/sync/on_device/sync_device.h"

#include <algorithm>
#include <bit>
#include <new>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/sync/over_device/device_collectives.h"
#include "lmdbio/sync/over_device/event_wait.h"
#include "lmdbio/sync/over_device_wire/device_wire.h"
#include "lmdbio/sync/over_library/library_collectives.h"
#include "lmdbio/sync/over_nccl/nccl_collectives.h"
#include "lmdbio/sync/over_wire/link_wire.h"

namespace lmdbio::sync {
namespace {

using device::DeviceAddress;
using device::DeviceEvent;
using device::DeviceSpan;
using device::DeviceStream;
using device::PointerFacts;
using device::PointerKind;

// Events of tensors that are submitted at the same time. More are made when they are needed.
constexpr size_t kEventsAtStart = 64;

const void* PointerOf(DeviceAddress address) { return std::bit_cast<const void*>(address.value); }

std::string_view KindText(PointerKind kind) {
  switch (kind) {
    case PointerKind::kPlainHost:
      return "memory of the host";
    case PointerKind::kPinnedHost:
      return "pinned memory of the host";
    case PointerKind::kManaged:
      return "managed memory";
    case PointerKind::kDevice:
      return "memory of a GPU";
  }
  return "unknown memory";
}

bool IsOfHost(PointerKind kind) {
  return kind == PointerKind::kPlainHost || kind == PointerKind::kPinnedHost;
}

Status WrongMemory(const Request& request, const void* pointer, const std::string& problem) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("tensor '{}': {} {}", request.name, fmt::ptr(pointer), problem));
}

}  // namespace

Result<std::unique_ptr<SyncDevice>> SyncDevice::Open(int ordinal, const kernels::KernelImage& image,
                                                     device::CacheCheck check) {
  std::unique_ptr<SyncDevice> opened(new SyncDevice());
  LMDBIO_TRY(const device::DriverTable* const driver, device::SystemDriver());
  LMDBIO_TRY(opened->device_, device::Device::Open(ordinal, *driver, check));
  auto kernels = kernels::DeviceKernels::Load(*opened->device_, image);
  if (kernels) {
    opened->kernels_ = std::move(*kernels);
  } else if (kernels.error().code() == ErrorCode::kUnsupported) {
    opened->notes_.push_back(
        fmt::format("{}; tensors there are packed by one copy each", kernels.error().message()));
  } else {
    return Fail(std::move(kernels).error());
  }
  LMDBIO_TRY(opened->events_, EventPool::Make(opened->device_, kEventsAtStart));
  return opened;
}

Status SyncDevice::MakeRing(MutableBytes memory, uint64_t ample_bytes, ranks::Health& health) {
  if (memory.size() < kStagingBytes) {
    // Whole pages, because a page can be pinned once only.
    const uint64_t page = MemoryPageBytes();
    own_memory_.reset(new (std::nothrow) std::byte[kStagingBytes + page]());
    if (own_memory_ == nullptr) {
      return Fail(ErrorCode::kResourceExhausted,
                  fmt::format("no memory for {} bytes to pin", kStagingBytes + page));
    }
    const auto begin = std::bit_cast<uint64_t>(own_memory_.get());
    memory = {own_memory_.get() + (AlignUp(begin, page) - begin), kStagingBytes};
  }
  const uint64_t chunk_bytes =
      AlignDown(std::clamp(ample_bytes, kChunkBytesMin, kChunkBytesMax), kCacheLineBytes);
  waits_ = std::make_unique<DeviceWaits>(health);
  LMDBIO_TRY(ring_, StagingRing::Make({*device_, kernels_.get(), *events_, *waits_},
                                      memory.first(kStagingBytes), chunk_bytes));
  return {};
}

Result<std::unique_ptr<ArenaCollectives>> SyncDevice::MakeCollectives(
    ranks::Group& group, Collectives& meetings, const SyncArenaOptions& options,
    const WireTable& table, ranks::Health& health) {
  const uint64_t arena_bytes = buffer_offset_ + options.buffer_bytes;
  const std::function<Status()> check = [waits = waits_.get()] { return waits->Check(); };
  if (options.way == ArenaWay::kLibrary) {
    return LibraryCollectives::Make(group,
                                    {.gpu = *device_,
                                     .kernels = kernels_.get(),
                                     .meetings = meetings,
                                     .check = check,
                                     .library = options.library},
                                    arena_bytes);
  }
  if (options.way == ArenaWay::kNccl) {
    return NcclCollectives::Make(group,
                                 {.gpu = *device_,
                                  .kernels = kernels_.get(),
                                  .meetings = meetings,
                                  .check = check,
                                  .give_up = [&health](const Error& why) { health.GiveUp(why); }},
                                 arena_bytes);
  }
  const auto make_between = [&](ranks::Group& roots) -> Result<std::unique_ptr<BetweenHosts>> {
    LMDBIO_TRY(auto wire, OpenLinkWire(roots, health, {.known_as = group.rank()}));
    return DeviceWire::Make(roots, std::move(wire), {*device_, *kernels_, check, group.rank()},
                            {.table = table});
  };
  return DeviceCollectives::Make(group,
                                 {.gpu = *device_,
                                  .kernels = kernels_.get(),
                                  .meetings = meetings,
                                  .check = check,
                                  .make_between = make_between},
                                 {.arena_bytes = arena_bytes,
                                  .order = options.order,
                                  .one_shot_bytes = options.one_shot_bytes},
                                 notes_);
}

Status SyncDevice::MakeArena(ranks::Group& group, Collectives& meetings,
                             const SyncArenaOptions& options, const WireTable& table,
                             ranks::Health& health) {
  buffer_offset_ = AlignUp(options.gradient_bytes, kPartBytes);
  LMDBIO_TRY(collectives_, MakeCollectives(group, meetings, options, table, health));
  if (collectives_ == nullptr) return {};
  const DeviceSpan buffer = {collectives_->arena().begin + buffer_offset_, options.buffer_bytes};
  LMDBIO_TRY(arena_, ArenaMover::Make({*device_, *kernels_, *events_}, buffer));
  return {};
}

Status SyncDevice::MakeGradients(uint64_t size_bytes) {
  DeviceAddress begin;
  if (collectives_ != nullptr) {
    begin = collectives_->arena().begin;
  } else if (size_bytes > 0) {
    LMDBIO_TRY(own_gradients_, device_->Allocate(size_bytes));
    begin = own_gradients_->begin();
  }
  places_ = std::make_unique<GradientPlaces>(begin.value, size_bytes, "device_gradient_bytes");
  return {};
}

Result<DeviceSpan> SyncDevice::Place(uint64_t size_bytes) {
  LMDBIO_TRY(const uint64_t address, places_->Take(size_bytes));
  return DeviceSpan{{address}, size_bytes};
}

std::optional<uint64_t> SyncDevice::OffsetOfPlaced(std::span<const Request> requests,
                                                   std::span<const uint64_t> addresses,
                                                   std::span<const uint64_t> offsets) const {
  if (!places_->Hold(requests, addresses, offsets)) return std::nullopt;
  return addresses[0] - collectives_->arena().begin.value;
}

Status SyncDevice::AwaitAll() const {
  return waits_->AwaitIdle([this] { return IsIdle(); });
}

bool SyncDevice::Drain(std::chrono::steady_clock::time_point until) const {
  const Result<bool> is_drained = LookUntil([this] { return IsIdle(); }, until, {});
  return is_drained && *is_drained;
}

Result<bool> SyncDevice::IsIdle() const {
  LMDBIO_TRY(const bool is_ring_idle, ring_->IsIdle());
  if (!is_ring_idle || arena_ == nullptr) return is_ring_idle;
  return arena_->IsIdle();
}

Status SyncDevice::LeaveInPeace() {
  return collectives_ != nullptr ? collectives_->LeaveInPeace() : Status();
}

void SyncDevice::Stop(const Error& why) {
  waits_->Stop();
  if (collectives_ != nullptr) collectives_->Stop(why);
}

Status SyncDevice::Check() const {
  LMDBIO_TRY_VOID(device_->context()->CheckUsable());
  return collectives_ != nullptr ? collectives_->Check() : Status();
}

void SyncDevice::Poison() {
  if (collectives_ != nullptr) collectives_->Poison();
}

// Memory that only looks like that of this GPU is refused with the name of its tensor, by Enter.
Result<MemoryKind> SyncDevice::KindOf(const void* pointer) const {
  LMDBIO_TRY(const PointerFacts facts, device_->Describe(pointer));
  return IsOfHost(facts.kind) ? MemoryKind::kHost : MemoryKind::kDevice;
}

Status SyncDevice::CheckOnDevice(const Request& request, DeviceAddress address) const {
  const void* const pointer = PointerOf(address);
  LMDBIO_TRY(const PointerFacts facts, device_->Describe(pointer));
  const int ordinal = device_->facts().ordinal;
  if (facts.kind != PointerKind::kDevice) {
    return WrongMemory(request, pointer,
                       fmt::format("is {}, not of GPU {}", KindText(facts.kind), ordinal));
  }
  if (facts.ordinal != ordinal) {
    return WrongMemory(request, pointer,
                       fmt::format("is memory of GPU {}, not of GPU {}", facts.ordinal, ordinal));
  }
  const uint64_t offset = address.value - facts.range.begin.value;
  if (!facts.range.Holds(offset, request.byte_count())) {
    return WrongMemory(request, pointer,
                       fmt::format("is followed by {} bytes of its memory; the tensor has {}",
                                   facts.range.size_bytes - offset, request.byte_count()));
  }
  return {};
}

Status SyncDevice::CheckOnHost(const Request& request, const void* pointer) const {
  LMDBIO_TRY(const PointerFacts facts, device_->Describe(pointer));
  if (IsOfHost(facts.kind)) return {};
  return WrongMemory(
      request, pointer,
      fmt::format("is {}; the tensor is submitted as one of the host", KindText(facts.kind)));
}

Result<EventPtr> SyncDevice::Enter(const Request& request, const DeviceTensor& tensor,
                                   const TensorUse& use) const {
  if (request.byte_count() > 0) {
    if (use.has_input) LMDBIO_TRY_VOID(CheckOnDevice(request, tensor.input));
    if (use.has_output && tensor.output != tensor.input) {
      LMDBIO_TRY_VOID(CheckOnDevice(request, tensor.output));
    }
  }
  const auto with_name = [&request](Error error) {
    return std::move(error).Within(fmt::format("tensor '{}'", request.name));
  };
  DeviceStream stream = device_->Borrow(tensor.stream);
  const Result<bool> is_captured = stream.IsCaptured();
  if (!is_captured) return Fail(with_name(is_captured.error().Copy()));
  if (*is_captured) {
    return Fail(with_name(Error(ErrorCode::kInvalidArgument,
                                "its stream is captured into a graph, which cannot be reduced")));
  }
  LMDBIO_TRY(const std::shared_ptr<DeviceEvent> ready, events_->Take());
  if (Status recorded = stream.Record(*ready); !recorded) {
    return Fail(with_name(std::move(recorded).error()));
  }
  return EventPtr(ready);
}

std::vector<std::string> SyncDevice::Description() const {
  const device::DeviceFacts& facts = device_->facts();
  std::vector<std::string> lines = {fmt::format(
      "GPU {} ({}): tensors pass through {} chunks of {} bytes of pinned memory, packed by {}",
      facts.ordinal, facts.name, ring_->slot_count(), ring_->chunk_bytes(),
      kernels_ != nullptr ? "kernels" : "one copy each")};
  if (collectives_ == nullptr) return lines;
  std::istringstream words(collectives_->Description());
  for (std::string line; std::getline(words, line);) lines.push_back(line);
  return lines;
}

void SyncDevice::KeepOwnMemory() {
  ring_.reset();  // unpins it
  KeepForever(std::move(own_memory_));
}

void SyncDevice::KeepAll() {
  KeepForever(std::move(arena_));
  KeepForever(std::move(collectives_));
  KeepForever(std::move(ring_));
  KeepForever(std::move(waits_));
  KeepForever(std::move(own_memory_));
  KeepForever(std::move(own_gradients_));
  KeepForever(std::move(events_));
  KeepForever(std::move(kernels_));
  KeepShared(device_);
}

}  // namespace lmdbio::sync
