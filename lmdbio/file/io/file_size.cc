#include "lmdbio/file/io/file_size.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::file {
namespace {

struct SizeAndMode {
  uint64_t size_bytes = 0;
  mode_t mode = 0;
};

// Asks the kernel for size and type only. fstat also asks for the time of the last access, which
// changes with every read, so network file systems would contact their server each time. fstat is
// the fallback if an old kernel or a sandbox refuses statx.
Result<SizeAndMode> Look(int fd) {
  struct statx found = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &found) == 0) {
    return SizeAndMode{found.stx_size, found.stx_mode};
  }
  struct stat plain = {};
  if (::fstat(fd, &plain) != 0) return Fail(ErrnoError(errno, "", "cannot be examined"));
  return SizeAndMode{static_cast<uint64_t>(plain.st_size), plain.st_mode};
}

}  // namespace

Result<uint64_t> FileSizeBytes(int fd) {
  LMDBIO_TRY(const SizeAndMode found, Look(fd));
  // The size of a block device is 0 in both structs.
  if (!S_ISBLK(found.mode)) return found.size_bytes;
  uint64_t device_bytes = 0;
  if (::ioctl(fd, BLKGETSIZE64, &device_bytes) != 0) {
    return Fail(ErrnoError(errno, "", "cannot be examined"));
  }
  return device_bytes;
}

}  // namespace lmdbio::file
