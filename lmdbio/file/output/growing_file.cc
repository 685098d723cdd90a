#include "lmdbio/file/output/growing_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/output/output_place.h"

namespace lmdbio::file {

Result<UniqueFd> OpenGrowingFile(const std::string& path) {
  LMDBIO_TRY(const OutputPlace place, OutputPlace::Find(path));
  if (place.kind() != PlaceKind::kFile) return place.OpenDirectly();
  const auto failed = [&] { return Fail(ErrnoError(errno, path, "cannot be written")); };
  // Not truncated yet: it may be a file that this call must not change. O_NONBLOCK: another process
  // may just have made a FIFO.
  UniqueFd file(::openat(place.folder(), place.name().c_str(),
                         O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                         0666));
  struct stat found = {};
  if (!file || ::fstat(file.get(), &found) != 0) return failed();
  LMDBIO_TRY_VOID(place.CheckOwner(found));
  if (::ftruncate(file.get(), 0) != 0) return failed();
  return file;
}

}  // namespace lmdbio::file
