#include "lmdbio/io/file_size.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>

#include "lmdbio/io/errno_error.h"

namespace lmdbio::io {

Result<uint64_t> FileSizeBytes(int fd) {
  struct stat found = {};
  if (::fstat(fd, &found) != 0) return Fail(ErrnoError(errno, "", "cannot be examined"));
  if (!S_ISBLK(found.st_mode)) return static_cast<uint64_t>(found.st_size);
  uint64_t device_bytes = 0;
  if (::ioctl(fd, BLKGETSIZE64, &device_bytes) != 0) {
    return Fail(ErrnoError(errno, "", "cannot be examined"));
  }
  return device_bytes;
}

}  // namespace lmdbio::io
