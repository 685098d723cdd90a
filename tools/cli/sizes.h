// tools/cli/sizes.h - sizes on the command line: 4096, 4K, 1M, 2G.
#ifndef LMDBIO_TOOLS_CLI_SIZES_H_
#define LMDBIO_TOOLS_CLI_SIZES_H_

#include <cstdint>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "tools/cli/cli.h"

namespace lmdbio::tools {

// A number of bytes; K, M and G are powers of 1024. Throws Misuse, naming the option `name`.
inline uint64_t ParseSize(std::string_view text, std::string_view name) {
  std::string_view digits = text;
  uint64_t unit = 1;
  if (!digits.empty()) {
    switch (digits.back() | 0x20) {
      case 'k':
        unit = uint64_t{1} << 10;
        break;
      case 'm':
        unit = uint64_t{1} << 20;
        break;
      case 'g':
        unit = uint64_t{1} << 30;
        break;
      default:
        break;
    }
    if (unit > 1) digits.remove_suffix(1);
  }
  const uint64_t count = ParseWhole(digits, fmt::format("--{}", name));
  if (count > std::numeric_limits<uint64_t>::max() / unit) {
    throw Misuse(fmt::format("--{}: {} is too large", name, text));
  }
  return count * unit;
}

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_CLI_SIZES_H_
