// lmdbio/file/output/growing_file.h - a file that others read while it grows, as a timeline.
#ifndef LMDBIO_FILE_OUTPUT_GROWING_FILE_H_
#define LMDBIO_FILE_OUTPUT_GROWING_FILE_H_

#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {

// Opens `path` for writing, empty. Unlike an OutputFile, the file has its name at once, and a
// killed process leaves the part that it has written. Devices, FIFOs and links as for OutputFile.
// Errors: as OutputPlace::Find; kPermission also if a regular file belongs to another user, or has
//         other names, in a folder that everybody may write to
Result<UniqueFd> OpenGrowingFile(const std::string& path);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_OUTPUT_GROWING_FILE_H_
