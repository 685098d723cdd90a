// lmdbio/device/device_memory.h - memory of a device, of this process or of another.
#ifndef LMDBIO_DEVICE_DEVICE_MEMORY_H_
#define LMDBIO_DEVICE_DEVICE_MEMORY_H_

#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/device/driver_table.h"
#include "lmdbio/device/pointer_cache.h"
#include "lmdbio/device/primary_context.h"

namespace lmdbio::device {

// Plain data, to be sent to another process of this host, which maps the memory with it.
struct MemoryTicket {
  IpcMemoryHandle handle;
  uint64_t process = 0;     // ProcessToken() of the owner
  uint64_t allocation = 0;  // a number of the owner, for its own imports
  uint64_t size_bytes = 0;
};

// The memory lives until its last DeviceMemory in this process is destroyed.
// Lifetime: no work of a stream uses the memory at that time. The owner is the last of all
//           processes; otherwise the driver defines nothing for the importers.
// Threads: any, but one for the move and the destructor
class DeviceMemory {
 public:
  // Called by Device::Allocate, which has the contract.
  // fill  does the zero-filling
  // Errors: as Device::Allocate
  static Result<DeviceMemory> Allocate(std::shared_ptr<PrimaryContext> context,
                                       std::shared_ptr<PointerCache> cache, DeviceStream& fill,
                                       uint64_t size_bytes);
  // Called by Device::Import, which has the contract.
  // Errors: as Device::Import
  static Result<DeviceMemory> Open(std::shared_ptr<PrimaryContext> context,
                                   std::shared_ptr<PointerCache> cache, const MemoryTicket& ticket);

  // Errors: as Device::Share
  Result<MemoryTicket> Ticket() const;

  DeviceSpan span() const;
  DeviceAddress begin() const { return span().begin; }
  uint64_t size_bytes() const { return span().size_bytes; }
  // Whether another process owns it.
  bool is_imported() const;

 private:
  class Mapped;

  explicit DeviceMemory(std::shared_ptr<const Mapped> mapped,
                        std::shared_ptr<PrimaryContext> user = nullptr)
      : mapped_(std::move(mapped)), user_(std::move(user)) {}

  std::shared_ptr<const Mapped> mapped_;  // never null except after a move
  // Of the GPU that has imported the memory of this process: its access ends with its context.
  std::shared_ptr<PrimaryContext> user_;
};

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_DEVICE_MEMORY_H_
