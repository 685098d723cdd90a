// lmdbio/base/digest.h - a 64-bit digest that ranks may compare, the same in every build.
#ifndef LMDBIO_BASE_DIGEST_H_
#define LMDBIO_BASE_DIGEST_H_

#include <cstdint>
#include <string_view>

namespace lmdbio {

// XXH3 with 64 bits, of the bytes of `text`. The algorithm is frozen, so compilers, libraries and
// byte orders do not matter; std::hash differs between all of them.
// seed  0, or the digest of what comes before
uint64_t TextDigest(std::string_view text, uint64_t seed = 0);

}  // namespace lmdbio
#endif  // LMDBIO_BASE_DIGEST_H_
