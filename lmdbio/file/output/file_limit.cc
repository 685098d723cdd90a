#include "lmdbio/file/output/file_limit.h"

#include <sys/resource.h>
#include <sys/stat.h>

namespace lmdbio::file {

bool IsWithinFileLimit(const UniqueFd& file, uint64_t size_bytes) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || size_bytes <= limit.rlim_cur) return true;
  struct stat found = {};
  return ::fstat(file.get(), &found) == 0 && !S_ISREG(found.st_mode);
}

}  // namespace lmdbio::file
