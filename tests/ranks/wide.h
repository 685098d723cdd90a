// tests/ranks/wide.h - whether a test of ranks runs all its combinations, or a share of them.
#ifndef LMDBIO_TESTS_RANKS_WIDE_H_
#define LMDBIO_TESTS_RANKS_WIDE_H_

#include <cstdlib>

namespace lmdbio::test {

// Whether the environment has LMDBIO_TEST_WIDE or LMDBIO_TEST_FULL, as in `scripts/test all`.
inline bool IsWide() {
  return std::getenv("LMDBIO_TEST_WIDE") != nullptr || std::getenv("LMDBIO_TEST_FULL") != nullptr;
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_RANKS_WIDE_H_
