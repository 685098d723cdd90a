// lmdbio/file/io/file_size.h - the size of an open file.
#ifndef LMDBIO_FILE_IO_FILE_SIZE_H_
#define LMDBIO_FILE_IO_FILE_SIZE_H_

#include <cstdint>

#include "lmdbio/base/status.h"

namespace lmdbio::file {

// The current size of a regular file or of a block device.
// Errors: kIo; the caller adds the path (Error::Within)
Result<uint64_t> FileSizeBytes(int fd);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_FILE_SIZE_H_
