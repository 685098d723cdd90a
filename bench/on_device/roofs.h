// bench/on_device/roofs.h - the copies that bound all other work: on the device, and from pinned
// memory of the host.
#ifndef LMDBIO_BENCH_ON_DEVICE_ROOFS_H_
#define LMDBIO_BENCH_ON_DEVICE_ROOFS_H_

#include <memory>
#include <utility>

#include "bench/on_device/device_timer.h"
#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device.h"
#include "lmdbio/ranks/shm/memory_file.h"

namespace lmdbio::figures {

// Host memory as lmdbio pins it: a memory file.
class PinnedSpace {
 public:
  // Errors: as CreateMemoryFile, Device::Pin
  static Result<PinnedSpace> Make(device::Device& device, uint64_t size_bytes);
  const device::PinnedBytes& pinned() const { return pinned_; }
  MutableBytes bytes() const { return pinned_.bytes(); }

 private:
  PinnedSpace(std::unique_ptr<ranks::SharedMapping> mapping, device::PinnedBytes pinned)
      : mapping_(std::move(mapping)), pinned_(std::move(pinned)) {}

  std::unique_ptr<ranks::SharedMapping> mapping_;
  device::PinnedBytes pinned_;
};

// A copy from memory of the device to other memory of the device.
class DeviceCopy {
 public:
  // Errors: as Device::Allocate
  static Result<DeviceCopy> Make(device::Device& device, uint64_t size_bytes);
  // Bytes that are read and written.
  double moved_bytes() const { return 2 * static_cast<double>(from_.size_bytes()); }
  // Errors: as DeviceStream::Copy
  Status EnqueueOn(device::DeviceStream& stream) const {
    return stream.Copy(to_.begin(), from_.begin(), from_.size_bytes());
  }

 private:
  DeviceCopy(device::DeviceMemory from, device::DeviceMemory to)
      : from_(std::move(from)), to_(std::move(to)) {}

  device::DeviceMemory from_;
  device::DeviceMemory to_;
};

// A copy from pinned memory of the host.
class PinnedCopy {
 public:
  // Errors: as PinnedSpace::Make, Device::Allocate
  static Result<PinnedCopy> Make(device::Device& device, uint64_t size_bytes);
  double moved_bytes() const { return static_cast<double>(to_.size_bytes()); }
  // Errors: as DeviceStream::CopyIn
  Status EnqueueOn(device::DeviceStream& stream) const {
    return stream.CopyIn(to_.begin(), from_.pinned(), 0, to_.size_bytes());
  }

 private:
  PinnedCopy(PinnedSpace from, device::DeviceMemory to)
      : from_(std::move(from)), to_(std::move(to)) {}

  PinnedSpace from_;
  device::DeviceMemory to_;
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_ROOFS_H_
