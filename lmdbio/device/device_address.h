// lmdbio/device/device_address.h - addresses that only a device may follow.
#ifndef LMDBIO_DEVICE_DEVICE_ADDRESS_H_
#define LMDBIO_DEVICE_DEVICE_ADDRESS_H_

#include <compare>
#include <cstdint>

namespace lmdbio::device {

// An address of device memory, or of pinned memory as the device sees it. It is no pointer, so host
// code cannot follow it by mistake.
struct DeviceAddress {
  uint64_t value = 0;

  friend constexpr auto operator<=>(DeviceAddress, DeviceAddress) = default;
  friend constexpr DeviceAddress operator+(DeviceAddress address, uint64_t bytes) {
    return {address.value + bytes};
  }
};

// Consecutive bytes of the device.
struct DeviceSpan {
  DeviceAddress begin;
  uint64_t size_bytes = 0;

  // Whether all of [begin + offset, begin + offset + size) lies inside.
  constexpr bool Holds(uint64_t offset, uint64_t size) const {
    return offset <= size_bytes && size <= size_bytes - offset;
  }
  // Whether all of its bytes have an address; false for a span at address 0.
  constexpr bool HasAddresses() const {
    return size_bytes == 0 || (begin.value != 0 && begin.value + size_bytes > begin.value);
  }
  // Whether both have a byte in common.
  // Requires: both HasAddresses()
  constexpr bool Overlaps(const DeviceSpan& other) const {
    return size_bytes > 0 && other.size_bytes > 0 && begin < other.begin + other.size_bytes &&
           other.begin < begin + size_bytes;
  }
  friend constexpr bool operator==(const DeviceSpan&, const DeviceSpan&) = default;
};

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_DEVICE_ADDRESS_H_
