#include "lmdbio/ranks/shm/anonymous_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/ranks/shm/call_failure.h"
#include "lmdbio/ranks/shm/huge_pages.h"

namespace lmdbio::ranks {
namespace {

// Of every supported machine. Sums with smaller sizes do not overflow.
constexpr uint64_t kAddressSpaceBytes = uint64_t{1} << 62;

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

// Reserves enough to contain a start at a multiple of 2 MiB, and unmaps the rest at both ends.
Result<std::unique_ptr<SharedMemory>> AllocateAnonymous(uint64_t size_bytes) {
  const auto failed = [size_bytes](int error_number) {
    return CallFailed(ErrorCode::kResourceExhausted,
                      fmt::format("{} bytes of shared memory: mmap", size_bytes), error_number);
  };
  if (size_bytes > kAddressSpaceBytes) return failed(ENOMEM);
  const uint64_t align_bytes = HugePages::kPageBytes;
  const uint64_t mapped_bytes = AlignUp(std::max<uint64_t>(size_bytes, 1), kMemoryPageBytes);
  void* const reserved = ::mmap(nullptr, mapped_bytes + align_bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
  if (reserved == MAP_FAILED) return failed(errno);
  auto* const first = static_cast<std::byte*>(reserved);
  const uint64_t before = -reinterpret_cast<uintptr_t>(first) % align_bytes;
  std::byte* const address = first + before;
  if (before > 0) ::munmap(first, before);
  ::munmap(address + mapped_bytes, align_bytes - before);
  // A child that inherits the pages would force a copy of each page at the next read into it.
  ::madvise(address, mapped_bytes, MADV_WIPEONFORK);
  ::madvise(address, mapped_bytes, MADV_HUGEPAGE);
  return std::make_unique<AnonymousMemory>(address, mapped_bytes, size_bytes);
}

}  // namespace lmdbio::ranks
