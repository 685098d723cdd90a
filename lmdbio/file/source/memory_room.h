// lmdbio/file/source/memory_room.h - the memory that this process can still allocate.
//
// Source: docs/order.md "Reads".
#ifndef LMDBIO_FILE_SOURCE_MEMORY_ROOM_H_
#define LMDBIO_FILE_SOURCE_MEMORY_ROOM_H_

#include <cstdint>
#include <string>

namespace lmdbio::file {

// The files in which the kernel reports memory. Tests pass other files of the same form.
struct MemoryFiles {
  std::string meminfo = "/proc/meminfo";
  std::string cgroup_of_process = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";
};

// The number of bytes that this process can allocate without swapping and without being killed. It
// is the smaller of the host's available memory and the rest of the control groups' limits (version
// 2, or the memory controller of version 1). Reclaimable memory counts as free, except without
// /proc, where the host's memory without a user is all that is known. 0 if the kernel does not
// report it.
uint64_t MemoryRoomBytes(const MemoryFiles& files = {});

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_MEMORY_ROOM_H_
