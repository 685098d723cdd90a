// tests/emulated_gpu/device_file.h - the file that holds the memory of emulated devices.
//
// All of it is mapped once for the stand-in itself. A part that a device has handed out is mapped a
// second time, without any permission, at the address that the program gets. So a program that
// follows such an address dies.
#ifndef LMDBIO_TESTS_EMULATED_GPU_DEVICE_FILE_H_
#define LMDBIO_TESTS_EMULATED_GPU_DEVICE_FILE_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lmdbio/base/unique_fd.h"

namespace lmdbio::test {

// The records of an event, from 1, in memory that processes may share. A wait means one record, so
// each has a place of its own until kRecordsMax later ones exist.
struct EventRecords {
  static constexpr size_t kRecordsMax = 64;

  std::atomic<uint64_t> last = 0;
  std::array<std::atomic<uint64_t>, kRecordsMax> done = {};  // record n at n % kRecordsMax
  std::array<std::atomic<uint64_t>, kRecordsMax> time = {};  // when it was done

  bool IsDone(uint64_t record) const { return done[record % kRecordsMax] >= record; }
};

class DeviceFile {
 public:
  static constexpr uint64_t kPageBytes = 4096;
  static constexpr uint64_t kAddressBytes = uint64_t{1} << 34;  // for each process

  // path  null: a file without a name. Ends the process if there is no such file.
  explicit DeviceFile(const char* path);
  DeviceFile(const DeviceFile&) = delete;
  DeviceFile& operator=(const DeviceFile&) = delete;

  // Tells this file from any other.
  uint64_t identity() const { return head().identity; }
  // A new part of the file [whole pages]: its offset.
  uint64_t TakeSpace(uint64_t size_bytes);
  // Gives the memory of a part back to the system. The part is not taken again.
  void Discard(uint64_t offset, uint64_t size_bytes);
  // New addresses [whole pages]. They fault until the end.
  uint64_t TakeAddresses(uint64_t size_bytes);
  // The program gets this address for this part. A program that follows it dies.
  void Map(uint64_t address, uint64_t offset, uint64_t size_bytes);
  void Unmap(uint64_t address, uint64_t size_bytes);
  // As the stand-in sees the part.
  std::byte* At(uint64_t offset) const { return view_ + offset; }

  // Records of an event that processes share; null if all places are taken.
  EventRecords* TakeSharedEvent(uint64_t* place);
  EventRecords* SharedEvent(uint64_t place) const;

 private:
  static constexpr uint64_t kFileBytes = uint64_t{1} << 32;  // sparse
  static constexpr size_t kSharedEventsMax = 4096;

  struct FileHead {
    uint64_t identity;
    std::atomic<uint64_t> next_offset;
    std::atomic<uint64_t> next_event;
    std::array<EventRecords, kSharedEventsMax> events;
  };

  FileHead& head() const { return *reinterpret_cast<FileHead*>(view_); }

  UniqueFd file_;
  std::byte* view_;
  uint64_t next_address_;
  uint64_t end_address_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_GPU_DEVICE_FILE_H_
