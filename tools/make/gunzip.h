// tools/make/gunzip.h - bytes of a gzip file, unpacked.
#ifndef LMDBIO_TOOLS_MAKE_GUNZIP_H_
#define LMDBIO_TOOLS_MAKE_GUNZIP_H_

#include <string>
#include <string_view>

#include "lmdbio/base/status.h"

namespace lmdbio::tools {

// Unpacks `bytes` if they are a gzip file; returns anything else as it is.
// Errors: kCorruption        damaged, or cut off
//         kResourceExhausted  more than a gigabyte
Result<std::string> Gunzip(std::string_view bytes);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_GUNZIP_H_
