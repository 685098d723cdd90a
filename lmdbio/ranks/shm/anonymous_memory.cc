#include "lmdbio/ranks/shm/anonymous_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

class AnonymousMemory final : public SharedMemory {
 public:
  AnonymousMemory(void* address, uint64_t mapped_bytes, uint64_t size_bytes)
      : address_(address),
        mapped_bytes_(mapped_bytes),
        bytes_(static_cast<std::byte*>(address), size_bytes) {}
  ~AnonymousMemory() override { ::munmap(address_, mapped_bytes_); }
  AnonymousMemory(const AnonymousMemory&) = delete;
  AnonymousMemory& operator=(const AnonymousMemory&) = delete;

  MutableBytes bytes() const override { return bytes_; }
  void Abandon() override {}  // no other process takes part in the release

 private:
  void* address_;
  uint64_t mapped_bytes_;
  MutableBytes bytes_;
};

}  // namespace

Result<std::unique_ptr<SharedMemory>> AllocateAnonymous(uint64_t size_bytes) {
  const uint64_t mapped_bytes = std::max<uint64_t>(size_bytes, 1);  // mmap refuses 0
  void* address = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                         /*fd=*/-1, /*offset=*/0);
  if (address == MAP_FAILED) {
    return CallFailed(ErrorCode::kResourceExhausted,
                      fmt::format("{} bytes of shared memory: mmap", size_bytes), errno);
  }
  // A child that inherits the pages would force a copy of each page at the next read into it.
  ::madvise(address, mapped_bytes, MADV_WIPEONFORK);
  ::madvise(address, mapped_bytes, MADV_HUGEPAGE);
  return std::make_unique<AnonymousMemory>(address, mapped_bytes, size_bytes);
}

}  // namespace lmdbio::ranks
