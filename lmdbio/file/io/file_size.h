// lmdbio/file/io/file_size.h - how many bytes an open file has.
#ifndef LMDBIO_FILE_IO_FILE_SIZE_H_
#define LMDBIO_FILE_IO_FILE_SIZE_H_

#include <cstdint>

#include "lmdbio/base/status.h"

namespace lmdbio::file {

// The size of a regular file or of a block device right now.
// Errors: kIo; the caller adds the path (Error::Within)
Result<uint64_t> FileSizeBytes(int fd);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_FILE_SIZE_H_
