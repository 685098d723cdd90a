// tools/make/gunzip.h - decompresses the bytes of a gzip file.
#ifndef LMDBIO_TOOLS_MAKE_GUNZIP_H_
#define LMDBIO_TOOLS_MAKE_GUNZIP_H_

#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::tools {

// Decompresses `bytes` if they are a gzip file; returns other bytes unchanged.
// Errors: kCorruption        damaged or truncated
//         kResourceExhausted  more than a gigabyte
Result<std::string> Gunzip(std::string_view bytes);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_GUNZIP_H_
