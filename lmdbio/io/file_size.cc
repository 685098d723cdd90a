#include "lmdbio/io/file_size.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>

#include "lmdbio/io/errno_error.h"

namespace lmdbio::io {

Result<uint64_t> FileSizeBytes(int fd) {
  // No more than that: the time of the last access, which fstat wants too, is out of date after
  // every read, and filesystems over a network would ask their server for it each time.
  struct statx found = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_SIZE, &found) != 0) {
    return Fail(ErrnoError(errno, "", "cannot be examined"));
  }
  if (!S_ISBLK(found.stx_mode)) return uint64_t{found.stx_size};
  uint64_t device_bytes = 0;
  if (::ioctl(fd, BLKGETSIZE64, &device_bytes) != 0) {
    return Fail(ErrnoError(errno, "", "cannot be examined"));
  }
  return device_bytes;
}

}  // namespace lmdbio::io
