#include "lmdbio/io/cache_probe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <random>

#include "lmdbio/io/errno_error.h"
#include "lmdbio/io/unique_fd.h"

namespace lmdbio::io {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr int kProbes = 64;

// Linux 6.5; the C library has no name for it yet.
constexpr long kCachestatCall = 451;
struct CachestatRange {
  uint64_t offset;
  uint64_t length_bytes;
};
struct CachestatAnswer {
  uint64_t cached_pages;
  uint64_t other[4];
};

// None where the kernel does not know the call, or does not tell us.
std::optional<double> CountedShare(int fd, uint64_t size_bytes) {
  CachestatRange whole{0, size_bytes};
  CachestatAnswer answer{};
  if (::syscall(kCachestatCall, fd, &whole, &answer, 0) != 0) return std::nullopt;
  const uint64_t page_count = (size_bytes + kPageBytes - 1) / kPageBytes;
  return std::min(1.0, static_cast<double>(answer.cached_pages) / static_cast<double>(page_count));
}

// Reads a byte here and there that must not wait. Even then the kernel may begin to fetch what it
// did not have, so the places are new ones each time, and nothing around them is read ahead.
double ProbedShare(int fd, uint64_t size_bytes) {
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  std::mt19937_64 random{std::random_device{}()};
  std::uniform_int_distribution<uint64_t> place(0, size_bytes - 1);
  int cached = 0;
  for (int i = 0; i < kProbes; ++i) {
    char byte = 0;
    iovec into{&byte, 1};
    if (::preadv2(fd, &into, 1, static_cast<off_t>(place(random)), RWF_NOWAIT) == 1) ++cached;
  }
  return static_cast<double>(cached) / kProbes;
}

}  // namespace

Result<double> CachedShare(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Fail(ErrnoError(errno, path, "cannot be opened"));
  struct stat found = {};
  if (::fstat(fd.get(), &found) != 0) return Fail(ErrnoError(errno, path, "cannot be examined"));
  const auto size_bytes = static_cast<uint64_t>(found.st_size);
  if (size_bytes == 0) return 0.0;
  if (const auto counted = CountedShare(fd.get(), size_bytes)) return *counted;
  return ProbedShare(fd.get(), size_bytes);
}

}  // namespace lmdbio::io
