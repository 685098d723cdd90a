#include "lmdbio/base/digest.h"

#include <xxhash.h>

namespace lmdbio {

uint64_t TextDigest(std::string_view text, uint64_t seed) {
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

}  // namespace lmdbio
