// lmdbio/file/source/small_file.h - small files as a whole: read with a size limit, replaced
// atomically.
#ifndef LMDBIO_FILE_SOURCE_SMALL_FILE_H_
#define LMDBIO_FILE_SOURCE_SMALL_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

// Reads the file at `path`.
// Errors: kNotFound, kPermission, kIo; kResourceExhausted if it is larger than size_bytes_max
Result<std::vector<std::byte>> ReadSmallFile(const std::string& path, uint64_t size_bytes_max);

// Makes `bytes` the content of the file at `path`. A reader of the path sees the complete old file
// or the complete new file, also after a crash. A failure leaves no other file. A symbolic link
// stays, and a device or FIFO receives the bytes (file/output/output_file.h).
// Errors: as OutputFile
Status WriteFileAtomically(const std::string& path, Bytes bytes);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_SMALL_FILE_H_
