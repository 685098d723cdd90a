// lmdbio/file/source/memory_room.h - how much memory there is still to take.
//
// Source: docs/order.md "Reads".
#ifndef LMDBIO_FILE_SOURCE_MEMORY_ROOM_H_
#define LMDBIO_FILE_SOURCE_MEMORY_ROOM_H_

#include <cstdint>
#include <string>

namespace lmdbio::file {

// Where the kernel tells: for tests, files of the same form elsewhere.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string cgroup_of_process = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";
};

// Bytes that may be taken without anything being swapped out or killed: what the host has
// available, and what the limits of this process's control groups (version 2, or the memory
// controller of version 1) leave beside memory that cannot be given back. 0 where nobody tells.
uint64_t MemoryRoomBytes(const MemoryFiles& files = {});

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_MEMORY_ROOM_H_
