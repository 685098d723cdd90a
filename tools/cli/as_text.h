// tools/cli/as_text.h - bytes seen as characters, for what parses and prints.
#ifndef LMDBIO_TOOLS_CLI_AS_TEXT_H_
#define LMDBIO_TOOLS_CLI_AS_TEXT_H_

#include <string_view>

#include "lmdbio/base/types.h"

namespace lmdbio::tools {

// Lifetime: that of what `bytes` views.
inline std::string_view AsText(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_CLI_AS_TEXT_H_
