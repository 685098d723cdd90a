// tests/support/good.h - results that must not be errors.
#ifndef LMDBIO_TESTS_SUPPORT_GOOD_H_
#define LMDBIO_TESTS_SUPPORT_GOOD_H_

#include <stdexcept>
#include <utility>

#include "lmdbio/base/status.h"

namespace lmdbio::test {

// Throws std::runtime_error, which ends the test case with the message, if it is an error.
template <typename T>
T Good(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return *std::move(result);
}

// Throws std::runtime_error, which ends the test case with the message, if it is an error.
inline void Must(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message());
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SUPPORT_GOOD_H_
