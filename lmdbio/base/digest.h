// lmdbio/base/digest.h - a 64-bit digest that ranks compare; it is the same in every build.
#ifndef LMDBIO_BASE_DIGEST_H_
#define LMDBIO_BASE_DIGEST_H_

#include <cstdint>
#include <string_view>

namespace lmdbio {

// The 64-bit XXH3 hash of the bytes of `text`. The algorithm is frozen, so the digest does not
// depend on compiler, library or byte order. std::hash depends on all three.
// seed  0, or the digest of the preceding text
uint64_t TextDigest(std::string_view text, uint64_t seed = 0);

}  // namespace lmdbio
#endif  // LMDBIO_BASE_DIGEST_H_
