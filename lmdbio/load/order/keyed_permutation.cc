#include "lmdbio/load/order/keyed_permutation.h"

#include <cmath>

#include "lmdbio/base/check.h"

namespace lmdbio::load {
namespace {

// The least s with s * s >= n. The root of a double is inexact for n above 2^53, so it is corrected
// in both directions. `reaches` compares a quotient, because s * s may wrap.
uint64_t RootUp(uint64_t n) {
  auto root = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  const auto reaches = [n](uint64_t s) { return s >= (n + s - 1) / s; };
  while (root > 1 && reaches(root - 1)) --root;
  while (root == 0 || !reaches(root)) ++root;
  return root;
}

}  // namespace

KeyedPermutation::KeyedPermutation(uint64_t n, uint64_t key)
    : n_(n), left_range_(RootUp(n)), right_range_(0), key_(key) {
  LMDBIO_CHECK(n > 0);
  // With a = ceil(sqrt(n)) and b = ceil(n / a), a * b exceeds n by less than a. So a value seldom
  // lies outside [0, n) and needs another turn.
  right_range_ = n / left_range_ + (n % left_range_ > 0 ? 1 : 0);
}

}  // namespace lmdbio::load
