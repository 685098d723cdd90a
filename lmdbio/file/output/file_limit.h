// lmdbio/file/output/file_limit.h - the limit of this process for the size of files (ulimit -f).
#ifndef LMDBIO_FILE_OUTPUT_FILE_LIMIT_H_
#define LMDBIO_FILE_OUTPUT_FILE_LIMIT_H_

#include <cstdint>

#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {

// Whether a file may grow to `size_bytes`. A write beyond the limit raises SIGXFSZ, which ends the
// process. Other files than regular ones have no limit.
// Cost: two system calls
bool IsWithinFileLimit(const UniqueFd& file, uint64_t size_bytes);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_OUTPUT_FILE_LIMIT_H_
