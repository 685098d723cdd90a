// tests/load/loader/matrix_share.h - a fixed part of a large matrix of combinations.
#ifndef LMDBIO_TESTS_LOAD_LOADER_MATRIX_SHARE_H_
#define LMDBIO_TESTS_LOAD_LOADER_MATRIX_SHARE_H_

#include <cstdint>
#include <cstdlib>

#include "tests/support/random.h"

namespace lmdbio::test {

// Takes about one of `one_of` combinations, the same ones in every run; all of them if the
// environment has LMDBIO_TEST_FULL.
class MatrixShare {
 public:
  explicit MatrixShare(uint64_t one_of)
      : one_of_(std::getenv("LMDBIO_TEST_FULL") != nullptr ? 1 : one_of) {}

  // Whether the next combination is to be left out.
  bool LeavesOut() { return random_.Below(one_of_) != 0; }

 private:
  uint64_t one_of_;
  Random random_{1};
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_LOAD_LOADER_MATRIX_SHARE_H_
