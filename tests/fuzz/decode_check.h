// tests/fuzz/decode_check.h - what every decoder of untrusted bytes promises.
#ifndef LMDBIO_TESTS_FUZZ_DECODE_CHECK_H_
#define LMDBIO_TESTS_FUZZ_DECODE_CHECK_H_

#include <string>
#include <vector>

#include "lmdbio/base/check.h"
#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::test {

// An error is one line.
inline void CheckMessage(const Error& error) {
  LMDBIO_CHECK(!error.message().empty() && error.message().find('\n') == std::string::npos);
}
inline void CheckMessageOf(const Status& status) {
  if (!status) CheckMessage(status.error());
}

// The bytes are refused with one line, or what they decode to encodes to the same bytes.
// decode  Result of a Bytes, which end where their memory ends, so that the sanitizers see a read
//         behind them
// encode  std::vector<std::byte> of what was decoded
// Returns: the Result
template <typename Decode, typename Encode>
auto CheckCodec(Bytes input, const Decode& decode, const Encode& encode) {
  const std::vector<std::byte> exact(input.begin(), input.end());
  auto decoded = decode(Bytes(exact));
  if (decoded) {
    LMDBIO_CHECK(encode(*decoded) == exact);
  } else {
    CheckMessage(decoded.error());
  }
  return decoded;
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FUZZ_DECODE_CHECK_H_
