#include "lmdbio/ranks/shm/anonymous_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/ranks/shm/aligned_space.h"
#include "lmdbio/ranks/shm/call_failure.h"

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

Result<std::unique_ptr<SharedMemory>> AllocateAnonymous(uint64_t size_bytes) {
  const auto failed = [size_bytes](int error_number) {
    return CallFailed(ErrorCode::kResourceExhausted,
                      fmt::format("{} bytes of shared memory: mmap", size_bytes), error_number);
  };
  if (size_bytes > kAddressSpaceBytes) return failed(ENOMEM);
  const uint64_t mapped_bytes = AlignUp(std::max<uint64_t>(size_bytes, 1), MemoryPageBytes());
  std::byte* const address = ReserveAligned(mapped_bytes);
  if (address == nullptr) return failed(errno);
  if (::mmap(address, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
             /*fd=*/-1, 0) == MAP_FAILED) {
    const int error_number = errno;
    ::munmap(address, mapped_bytes);
    return failed(error_number);
  }
  // A child that inherits the pages would force a copy of each page at the next read into it.
  ::madvise(address, mapped_bytes, MADV_WIPEONFORK);
  ::madvise(address, mapped_bytes, MADV_HUGEPAGE);
  return std::make_unique<AnonymousMemory>(address, mapped_bytes, size_bytes);
}

}  // namespace lmdbio::ranks
