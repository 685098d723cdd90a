#include "lmdbio/io/cache_probe.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cerrno>

#include "lmdbio/io/errno_error.h"
#include "lmdbio/io/unique_fd.h"

namespace lmdbio::io {
namespace {

constexpr int kProbes = 64;

}  // namespace

Result<double> CachedShare(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Fail(ErrnoError(errno, path, "cannot be opened"));
  struct stat found = {};
  if (::fstat(fd.get(), &found) != 0) return Fail(ErrnoError(errno, path, "cannot be examined"));
  int cached = 0;
  for (int i = 0; i < kProbes; ++i) {
    char byte = 0;
    iovec place{&byte, 1};
    // Not the very first byte: opening the file has just read that page.
    const off_t offset = found.st_size / (kProbes + 1) * (i + 1);
    if (::preadv2(fd.get(), &place, 1, offset, RWF_NOWAIT) == 1) ++cached;
  }
  return static_cast<double>(cached) / kProbes;
}

}  // namespace lmdbio::io
