#include "lmdbio/ranks/shm/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/ranks/shm/aligned_space.h"
#include "lmdbio/ranks/shm/call_failure.h"

namespace lmdbio::ranks {
namespace {

constexpr const char* kName = "lmdbio";  // in /proc/PID/maps; need not be unique
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// MFD_NOEXEC_SEAL of Linux 6.3. Hosts that forbid executable memory files (sysctl vm.memfd_noexec)
// refuse files without it, and older kernels refuse the flag.
constexpr unsigned kNoExecution = 8;
constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;

// mmap refuses 0 bytes.
uint64_t FileBytes(uint64_t size_bytes) {
  return AlignUp(std::max<uint64_t>(size_bytes, 1), MemoryPageBytes());
}

uint64_t HostMemoryBytes() {
  struct sysinfo host = {};
  if (::sysinfo(&host) != 0) return std::numeric_limits<int64_t>::max();
  return (uint64_t{host.totalram} + host.totalswap) * host.mem_unit;
}

// The kernel grants a memory file of any size, and kills a process when it has no page left. So
// this compares the size with the memory of the host, as the kernel itself does for private memory.
// A file above the limit of ulimit -f would raise a signal.
Status CheckFits(uint64_t size_bytes) {
  const uint64_t host_bytes = HostMemoryBytes();
  if (size_bytes > host_bytes) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("{} bytes of shared memory: this host has {} bytes of memory and swap: "
                            "request less",
                            size_bytes, host_bytes));
  }
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && FileBytes(size_bytes) > limit.rlim_cur) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("{} bytes of shared memory: this process may create files of {} bytes "
                            "at most: raise the limit with ulimit -f, or request less",
                            size_bytes, limit.rlim_cur));
  }
  return {};
}

Result<UniqueFd> OpenMemoryFile() {
  UniqueFd file(::memfd_create(kName, kFlags | kNoExecution));
  if (!file && errno == EINVAL) file = UniqueFd(::memfd_create(kName, kFlags));
  if (!file) return CallFailed(ErrorCode::kUnsupported, "memfd_create", errno);
  return file;
}

}  // namespace

Result<UniqueFd> CreateMemoryFile(uint64_t size_bytes) {
  LMDBIO_TRY_VOID(CheckFits(size_bytes));
  LMDBIO_TRY(UniqueFd file, OpenMemoryFile());
  if (::ftruncate(file.get(), static_cast<off_t>(FileBytes(size_bytes))) != 0) {
    return CallFailed(ErrorCode::kUnsupported, "ftruncate of a memory file", errno);
  }
  if (::fcntl(file.get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return CallFailed(ErrorCode::kUnsupported, "sealing a memory file", errno);
  }
  return file;
}

Result<std::unique_ptr<SharedMapping>> SharedMapping::Map(const UniqueFd& file,
                                                          uint64_t size_bytes) {
  const uint64_t mapped_bytes = FileBytes(size_bytes);
  struct stat found = {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (::fstat(file.get(), &found) != 0 || static_cast<uint64_t>(found.st_size) != mapped_bytes ||
      seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("the received file is not a memory file of {} sealed bytes", mapped_bytes));
  }
  const auto failed = [size_bytes](int error_number) {
    return CallFailed(ErrorCode::kResourceExhausted,
                      fmt::format("{} bytes of shared memory: mmap", size_bytes), error_number);
  };
  std::byte* const start = ReserveAligned(mapped_bytes);
  if (start == nullptr) return failed(errno);
  if (::mmap(start, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.get(), 0) ==
      MAP_FAILED) {
    const int error_number = errno;
    ::munmap(start, mapped_bytes);
    return failed(error_number);
  }
  return std::unique_ptr<SharedMapping>(new SharedMapping(start, mapped_bytes, size_bytes));
}

SharedMapping::~SharedMapping() { ::munmap(bytes_.data(), mapped_bytes_); }

}  // namespace lmdbio::ranks
