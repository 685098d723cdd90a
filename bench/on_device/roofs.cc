#include "bench/on_device/roofs.h"

#include "lmdbio/base/unique_fd.h"

namespace lmdbio::figures {

using device::Device;
using device::DeviceMemory;

Result<PinnedSpace> PinnedSpace::Make(Device& device, uint64_t size_bytes) {
  LMDBIO_TRY(const UniqueFd file, ranks::CreateMemoryFile(size_bytes));
  LMDBIO_TRY(auto mapping, ranks::SharedMapping::Map(file, size_bytes));
  LMDBIO_TRY(device::PinnedBytes pinned, device.Pin(mapping->bytes()));
  return PinnedSpace(std::move(mapping), std::move(pinned));
}

Result<DeviceCopy> DeviceCopy::Make(Device& device, uint64_t size_bytes) {
  LMDBIO_TRY(DeviceMemory from, device.Allocate(size_bytes));
  LMDBIO_TRY(DeviceMemory to, device.Allocate(size_bytes));
  return DeviceCopy(std::move(from), std::move(to));
}

Result<PinnedCopy> PinnedCopy::Make(Device& device, uint64_t size_bytes) {
  LMDBIO_TRY(PinnedSpace from, PinnedSpace::Make(device, size_bytes));
  LMDBIO_TRY(DeviceMemory to, device.Allocate(size_bytes));
  return PinnedCopy(std::move(from), std::move(to));
}

}  // namespace lmdbio::figures
