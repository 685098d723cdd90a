// tests/emulated_gpu/device_tables.h - the live memory of emulated devices, by address.
#ifndef LMDBIO_TESTS_EMULATED_GPU_DEVICE_TABLES_H_
#define LMDBIO_TESTS_EMULATED_GPU_DEVICE_TABLES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/device_file.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/peer_access.h"

namespace lmdbio::test {

// A device sees pinned memory at other addresses than the host, as on some systems.
inline constexpr uint64_t kPinnedOffset = uint64_t{1} << 56;

enum class MemoryOrigin { kAllocated, kImported, kManaged, kPinned };

// One live range of memory that a device may use.
struct LiveMemory {
  MemoryOrigin origin = MemoryOrigin::kAllocated;
  int ordinal = 0;  // of its device; of an import, the device that has opened it
  uint64_t begin = 0;
  uint64_t size_bytes = 0;
  uint64_t mapped_bytes = 0;  // whole pages; 0 for pinned memory
  uint64_t offset = 0;        // in the file
  uint64_t buffer_id = 0;
  uint64_t opened = 1;  // how often an import is open
};

// Not for several threads at once.
class DeviceTables {
 public:
  explicit DeviceTables(DeviceFile& file) : file_(file) {}
  ~DeviceTables();
  DeviceTables(const DeviceTables&) = delete;
  DeviceTables& operator=(const DeviceTables&) = delete;

  // Filled with a pattern. An address that was freed last is given first.
  // Returns: the address; 0 if the device has no such amount
  uint64_t Allocate(int ordinal, size_t size_bytes, MemoryOrigin origin);
  // Fills it with another pattern.
  bool Free(uint64_t begin);
  // A part of the file that another process has allocated. A device that opens it again gets the
  // same address.
  uint64_t Import(int ordinal, uint64_t offset, uint64_t size_bytes);
  bool CloseImport(uint64_t begin);
  device::DriverCode Pin(int ordinal, void* memory, size_t size_bytes);
  bool Unpin(void* memory);

  // The range that holds the address; null if none does.
  const LiveMemory* Find(uint64_t address) const;
  // The bytes behind [address, address + size), as the stand-in sees them; null if they are not
  // all live.
  std::byte* Resolve(uint64_t address, size_t size_bytes) const;
  // The same for work of a device: null, too, for memory of another device to which it has no
  // access.
  std::byte* ResolveFor(int ordinal, uint64_t address, size_t size_bytes) const;
  std::byte* ResolveHost(const void* memory, size_t size_bytes) const;
  // Whether all of it is memory of the host that no device has pinned or allocated.
  bool IsPageable(const void* memory, size_t size_bytes) const;

  uint64_t UsedBytes(int ordinal) const { return used_bytes_[static_cast<size_t>(ordinal)]; }
  // Adds the live ranges to `objects`.
  void Count(EmulatedObjects& objects) const;
  // Gives back the ranges of a device, and ends access from it and to it. Returns: the number of
  // the ranges
  uint64_t DropAll(int ordinal);
  PeerAccess& peers() { return peers_; }

 private:
  struct Hole {
    uint64_t address;
    uint64_t offset;
    uint64_t mapped_bytes;
  };

  Hole TakeHole(uint64_t mapped_bytes);
  void Add(LiveMemory memory);
  void Drop(std::map<uint64_t, LiveMemory>::iterator found);
  std::map<uint64_t, LiveMemory>::const_iterator Holding(uint64_t address) const;

  bool MayUse(int ordinal, const LiveMemory& memory) const;

  DeviceFile& file_;
  PeerAccess peers_;
  std::map<uint64_t, LiveMemory> live_;  // by begin; pinned memory by its host address
  std::vector<Hole> holes_;              // freed; the last one is given first
  std::array<uint64_t, kEmulatedDevicesMax> used_bytes_ = {};
  uint64_t last_buffer_id_ = 0;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_GPU_DEVICE_TABLES_H_
