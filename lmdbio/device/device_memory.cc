#include "lmdbio/device/device_memory.h"

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/device/device_error.h"
#include "lmdbio/device/process_token.h"

namespace lmdbio::device {

// Memory that this process has allocated, or that it maps from another.
class DeviceMemory::Mapped {
 public:
  enum class From { kAllocated, kImported };

  Mapped(std::shared_ptr<PrimaryContext> context, std::shared_ptr<PointerCache> cache, From from)
      : context_(std::move(context)), cache_(std::move(cache)), from_(from) {}
  ~Mapped();
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  void Set(DeviceSpan span) {
    span_ = span;
    cache_->AddOwn({.kind = PointerKind::kDevice,
                    .ordinal = context_->ordinal(),
                    .range = span,
                    .can_be_shared = from_ == From::kAllocated});
  }

  PrimaryContext& context() const { return *context_; }
  From from() const { return from_; }
  DeviceSpan span() const { return span_; }
  uint64_t number() const { return number_; }

 private:
  static uint64_t NextNumber() {
    static std::atomic<uint64_t> last = 0;
    return ++last;
  }

  const std::shared_ptr<PrimaryContext> context_;
  const std::shared_ptr<PointerCache> cache_;
  const From from_;
  const uint64_t number_ = NextNumber();
  DeviceSpan span_;  // empty until the driver has given it
};

namespace {

// The allocations of this process that have a ticket, so that the process finds its own again.
template <typename T>
class TicketedMemory {
 public:
  void Add(uint64_t number, const std::shared_ptr<T>& memory) {
    const std::lock_guard lock(mutex_);
    std::erase_if(live_, [](const auto& entry) { return entry.second.expired(); });
    live_[number] = memory;
  }

  std::shared_ptr<T> Find(uint64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(number);
    return found != live_.end() ? found->second.lock() : nullptr;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::weak_ptr<T>> live_;
};

template <typename T>
TicketedMemory<T>& OwnTickets() {
  static TicketedMemory<T> shared;
  return shared;
}

// The error of a failed allocation says how much there is.
Error AllocationError(PrimaryContext& context, DriverCode code, uint64_t size_bytes) {
  const std::string what = fmt::format("cuMemAlloc of {} bytes", size_bytes);
  Error error = context.ErrorOf(code, what);
  if (code != driver_code::kOutOfMemory) return error;
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  const Status status = context.Run("cuMemGetInfo", [&](const DriverTable& driver) {
    return driver.MemGetInfo(&free_bytes, &total_bytes);
  });
  if (!status) return error;
  return Error(error.code(), fmt::format("{}: {} of {} bytes are free", error.message(), free_bytes,
                                         total_bytes));
}

// The error of a failed import names possible reasons.
Error ImportError(const PrimaryContext& context, DriverCode code, const char* what) {
  Error error = context.ErrorOf(code, what);
  switch (code) {
    case driver_code::kOutOfMemory:
      return error;
    case driver_code::kPeerAccessUnsupported:
    case driver_code::kTooManyPeers:
      return Error(ErrorCode::kUnsupported,
                   fmt::format("{}: GPU {} has no access to the GPU of the memory: {}",
                               error.message(), context.ordinal(), kNoPeerReasons));
    default:
      return Error(ErrorCode::kUnsupported,
                   error.message() +
                       ": device memory of other processes cannot be mapped here (containers with "
                       "pid namespaces of their own, and MIG, forbid it)");
  }
}

}  // namespace

DeviceMemory::Mapped::~Mapped() {
  // In a child of fork(), a thread of the parent may have held the cache's mutex.
  if (span_.size_bytes == 0 || context_->is_forked()) return;
  cache_->RemoveOwn(span_);
  const bool is_ours = from_ == From::kAllocated;
  context_->Release(is_ours ? "cuMemFree" : "cuIpcCloseMemHandle",
                    [this, is_ours](const DriverTable& driver) {
                      return is_ours ? driver.MemFree(span_.begin.value)
                                     : driver.IpcCloseMemHandle(span_.begin.value);
                    });
}

Result<DeviceMemory> DeviceMemory::Allocate(std::shared_ptr<PrimaryContext> context,
                                            std::shared_ptr<PointerCache> cache, DeviceStream& fill,
                                            uint64_t size_bytes) {
  if (size_bytes == 0) return Fail(ErrorCode::kInvalidArgument, "0 bytes of device memory");
  const auto mapped =
      std::make_shared<Mapped>(std::move(context), std::move(cache), Mapped::From::kAllocated);
  DeviceAddress begin;
  LMDBIO_TRY(const DriverCode code, mapped->context().Try("cuMemAlloc", [&](const auto& driver) {
    return driver.MemAlloc(&begin.value, size_bytes);
  }));
  if (code != driver_code::kSuccess) {
    return Fail(AllocationError(mapped->context(), code, size_bytes));
  }
  mapped->Set({begin, size_bytes});
  LMDBIO_TRY_VOID(fill.Fill(begin, std::byte{0}, size_bytes));
  if (Status filled = fill.Synchronize(); !filled) {
    // The fill may still be under way, and memory that a device writes to is not given back.
    if (!fill.Synchronize()) KeepForever(mapped);
    return Fail(std::move(filled).error());
  }
  return DeviceMemory(mapped);
}

Result<DeviceMemory> DeviceMemory::Open(std::shared_ptr<PrimaryContext> context,
                                        std::shared_ptr<PointerCache> cache,
                                        const MemoryTicket& ticket) {
  if (ticket.process == ProcessToken()) {
    auto mapped = OwnTickets<const Mapped>().Find(ticket.allocation);
    if (mapped == nullptr) {
      return Fail(ErrorCode::kStale, "the ticket is for memory that this process has freed");
    }
    LMDBIO_TRY_VOID(context->EnableAccessTo(mapped->context()));
    return DeviceMemory(std::move(mapped), std::move(context));
  }
  if (ticket.size_bytes == 0) {
    return Fail(ErrorCode::kInvalidArgument, "the ticket is for no memory");
  }
  if (context->driver().IpcOpenMemHandle == nullptr ||
      context->driver().IpcCloseMemHandle == nullptr) {
    return Fail(ErrorCode::kUnsupported, "this driver does not share memory between processes");
  }
  const auto mapped =
      std::make_shared<Mapped>(std::move(context), std::move(cache), Mapped::From::kImported);
  DeviceAddress begin;
  const char* const what = "cuIpcOpenMemHandle";
  LMDBIO_TRY(const DriverCode code, mapped->context().Try(what, [&](const auto& driver) {
    return driver.IpcOpenMemHandle(&begin.value, ticket.handle, kIpcLazyPeerAccess);
  }));
  if (code != driver_code::kSuccess) return Fail(ImportError(mapped->context(), code, what));
  mapped->Set({begin, ticket.size_bytes});
  return DeviceMemory(mapped);
}

Result<MemoryTicket> DeviceMemory::Ticket() const {
  if (is_imported()) {
    return Fail(ErrorCode::kInvalidArgument, "only the owner of device memory can share it");
  }
  PrimaryContext& context = mapped_->context();
  if (context.driver().IpcGetMemHandle == nullptr) {
    return Fail(ErrorCode::kUnsupported, "this driver does not share memory between processes");
  }
  MemoryTicket ticket = {.handle = {},
                         .process = ProcessToken(),
                         .allocation = mapped_->number(),
                         .size_bytes = size_bytes()};
  LMDBIO_TRY_VOID(context.Run("cuIpcGetMemHandle", [&](const DriverTable& driver) {
    return driver.IpcGetMemHandle(&ticket.handle, begin().value);
  }));
  OwnTickets<const Mapped>().Add(mapped_->number(), mapped_);
  return ticket;
}

DeviceSpan DeviceMemory::span() const { return mapped_->span(); }

bool DeviceMemory::is_imported() const { return mapped_->from() == Mapped::From::kImported; }

}  // namespace lmdbio::device
