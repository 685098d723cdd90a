// lmdbio/ranks/shm/memory_file.h - a file in memory without a name (memfd), mapped by several
// processes.
//
// It needs no room in /dev/shm, which is small in containers. The kernel frees it when the last
// process that holds or maps it ends, in whatever way.
#ifndef LMDBIO_RANKS_SHM_MEMORY_FILE_H_
#define LMDBIO_RANKS_SHM_MEMORY_FILE_H_

#include <cstdint>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/ranks/shm/aligned_space.h"
#include "lmdbio/ranks/shm/shared_memory.h"

namespace lmdbio::ranks {

// A file of zeros. Its size is sealed, so no process can shrink it while others map it.
// size_bytes  [may be 0]
// Errors: kResourceExhausted  more than the memory and swap of this host, or than the limit of this
//                             process for files (ulimit -f); no descriptor is left
//         kUnsupported        the system refuses such files; names the call and the reason
// Cost: three system calls; pages are allocated at their first touch
Result<UniqueFd> CreateMemoryFile(uint64_t size_bytes);

// A memory file mapped into this process, at a multiple of 2 MiB. So the kernel can use huge pages.
class SharedMapping final : public SharedMemory {
 public:
  static constexpr uint64_t kAlignBytes = kHugePageBytes;

  // file        borrowed; may be closed afterwards
  // size_bytes  the argument of CreateMemoryFile
  // Errors: kResourceExhausted  no such amount of address space
  //         kUnsupported        the file has another size, or one that can still change
  static Result<std::unique_ptr<SharedMapping>> Map(const UniqueFd& file, uint64_t size_bytes);

  ~SharedMapping() override;
  SharedMapping(const SharedMapping&) = delete;
  SharedMapping& operator=(const SharedMapping&) = delete;

  MutableBytes bytes() const override { return bytes_; }
  void Abandon() override {}  // no other process takes part in the release

 private:
  SharedMapping(std::byte* address, uint64_t mapped_bytes, uint64_t size_bytes)
      : mapped_bytes_(mapped_bytes), bytes_(address, size_bytes) {}

  uint64_t mapped_bytes_;
  MutableBytes bytes_;
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_MEMORY_FILE_H_
