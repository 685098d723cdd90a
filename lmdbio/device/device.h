// lmdbio/device/device.h - one GPU, as this process sees it.
#ifndef LMDBIO_DEVICE_DEVICE_H_
#define LMDBIO_DEVICE_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device_event.h"
#include "lmdbio/device/device_memory.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/device/driver_table.h"
#include "lmdbio/device/pinned_bytes.h"
#include "lmdbio/device/pointer_cache.h"
#include "lmdbio/device/primary_context.h"

namespace lmdbio::device {

struct DeviceFacts {
  int ordinal = 0;         // among the GPUs that this process sees
  std::string uuid;        // "GPU-8-4-4-4-12" hexadecimal digits: the same in every process
  std::string name;        // "NVIDIA H100 80GB HBM3"
  int driver_version = 0;  // 1000 * major + 10 * minor of the newest CUDA that the driver supports
  int compute_major = 0;
  int compute_minor = 0;
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
  bool can_pin = false;           // Pin
  bool can_share_memory = false;  // Share and Import of memory, unless the system forbids it
  bool can_share_events = false;  // events of kind kShared
  bool can_await_marks = false;   // Raise and AwaitAll
};

// Each call makes the device's primary context current in its thread while it runs
// (primary_context.h). Objects that a device has made may outlive it.
//
// In a child of fork() each call fails with kUnsupported, and the driver is not called.
//
// Errors of every call: kResourceExhausted  the device or the host is out of memory
//                       kInternal           the driver fails, by its own name for the reason. If
//                                           this ends the context, each later call gives the same.
// Threads: any
class Device {
 public:
  // driver   must live as long as all objects of the device; SystemDriver() does
  // ordinal  [>= 0]
  // check    how Describe checks the answers that it remembers
  // Errors: kNotFound     this process sees no such GPU; says how many it sees
  //         kUnsupported  the GPU has no unified addresses
  static Result<std::shared_ptr<Device>> Open(int ordinal, const DriverTable& driver,
                                              CacheCheck check = CacheCheck::kBufferId);

  const DeviceFacts& facts() const { return facts_; }

  // Memory filled with zeros, which can be shared. Waits for the device, so it belongs in a start.
  // size_bytes  [> 0]
  // Errors: kInvalidArgument  0 bytes
  Result<DeviceMemory> Allocate(uint64_t size_bytes);

  // A ticket with which other processes of this host map the memory.
  // Errors: kInvalidArgument  the memory is imported
  //         kUnsupported      the driver cannot share memory
  Result<MemoryTicket> Share(const DeviceMemory& memory) const { return memory.Ticket(); }

  // Maps memory of another process, of this GPU or of one that it reaches. A ticket of this process
  // gives the memory itself, and work of this GPU may then use it, too.
  // Errors: kUnsupported  this GPU does not reach that of the memory, or the system refuses it;
  //                       names possible reasons
  //         kStale        the ticket is of this process, and the memory is freed
  Result<DeviceMemory> Import(const MemoryTicket& ticket);

  // Makes host memory readable and writable for the device. The memory exists already, and may be
  // shared memory.
  // Errors: kInvalidArgument  0 bytes; not mapped memory; a part is pinned already
  Result<PinnedBytes> Pin(MutableBytes host);

  // Of high priority, and not ordered with the default stream.
  // Errors: see above
  Result<DeviceStream> MakeStream();
  // A stream of the program; null: the default stream.
  // Lifetime: the program keeps the stream while this object is used
  DeviceStream Borrow(StreamHandle handle) const { return DeviceStream::Borrow(context_, handle); }

  // Errors: kUnsupported  kind is kShared, and the device or driver has no such events
  Result<DeviceEvent> MakeEvent(DeviceEventKind kind);
  // Errors: as DeviceEvent::Ticket
  Result<EventTicket> Share(const DeviceEvent& event) const { return event.Ticket(); }
  // An event of another process of this host.
  // Errors: kInvalidArgument  the ticket is of this process
  //         kUnsupported      the system refuses it
  Result<DeviceEvent> Import(const EventTicket& ticket);

  // The kind of memory behind a pointer of the program, through the cache.
  // Errors: see above
  Result<PointerFacts> Describe(const void* pointer) {
    return cache_->Describe(*context_, pointer);
  }
  PointerCacheCounts pointer_counts() const { return cache_->counts(); }

  // For other rooms that call functions of the driver on this device.
  const std::shared_ptr<PrimaryContext>& context() const { return context_; }

  // Destructors have no result. The first failure in one of them is kept here.
  // Errors: as PrimaryContext::release_failure
  Status release_failure() const { return context_->release_failure(); }

 private:
  Device(DeviceFacts facts, std::shared_ptr<PrimaryContext> context, CacheCheck check,
         DeviceStream fill)
      : facts_(std::move(facts)),
        context_(std::move(context)),
        cache_(std::make_shared<PointerCache>(check)),
        fill_(std::move(fill)) {}

  const DeviceFacts facts_;
  const std::shared_ptr<PrimaryContext> context_;
  const std::shared_ptr<PointerCache> cache_;
  DeviceStream fill_;  // for Allocate
};

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_DEVICE_H_
