// tests/fuzz/touch_bytes.h - reads every byte, so that the sanitizers see every span handed out.
#ifndef LMDBIO_TESTS_FUZZ_TOUCH_BYTES_H_
#define LMDBIO_TESTS_FUZZ_TOUCH_BYTES_H_

#include <cstdint>

#include "lmdbio/base/types.h"

namespace lmdbio::test {

inline void TouchBytes(Bytes bytes) {
  [[maybe_unused]] static volatile uint8_t kept;  // volatile: the reads must happen
  uint8_t sum = 0;
  for (const std::byte byte : bytes) sum ^= std::to_integer<uint8_t>(byte);
  kept = sum;
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FUZZ_TOUCH_BYTES_H_
