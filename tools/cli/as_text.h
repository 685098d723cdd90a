// tools/cli/as_text.h - views bytes as characters, for parsers and printers.
#ifndef LMDBIO_TOOLS_CLI_AS_TEXT_H_
#define LMDBIO_TOOLS_CLI_AS_TEXT_H_

#include <string_view>

#include "lmdbio/base/types.h"

namespace lmdbio::tools {

// Lifetime: as long as the memory of `bytes`
inline std::string_view AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_CLI_AS_TEXT_H_
