// tests/fuzz/input_parts.h - takes the input of a fuzzer apart.
#ifndef LMDBIO_TESTS_FUZZ_INPUT_PARTS_H_
#define LMDBIO_TESTS_FUZZ_INPUT_PARTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "lmdbio/base/types.h"

namespace lmdbio::test {

// Values from the front of the input. Behind its end all are zero or empty.
class InputParts {
 public:
  explicit InputParts(Bytes input) : rest_(input) {}

  bool at_end() const { return rest_.empty(); }
  Bytes rest() const { return rest_; }
  std::string_view text_rest() const {
    return {reinterpret_cast<const char*>(rest_.data()), rest_.size()};
  }

  // The bytes of a value of any type that has no invalid ones.
  template <typename T>
  T Take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const Bytes bytes = TakeBytes(sizeof(T));
    if (!bytes.empty()) std::memcpy(static_cast<void*>(&value), bytes.data(), bytes.size());
    return value;
  }
  // A number of any magnitude, each about as often as the others.
  uint64_t TakeScaled() {
    const uint32_t shift = Take<uint8_t>() % 64;
    return Take<uint64_t>() >> shift;
  }
  uint64_t TakeBelow(uint64_t bound) { return Take<uint8_t>() % bound; }

  Bytes TakeBytes(size_t count) {
    const Bytes bytes = rest_.first(std::min(count, rest_.size()));
    rest_ = rest_.subspan(bytes.size());
    return bytes;
  }
  // Bytes with their number, of one or two bytes, in front.
  Bytes TakeShort() { return TakeBytes(Take<uint8_t>()); }
  Bytes TakeLong() { return TakeBytes(Take<uint16_t>()); }
  std::string TakeText() {
    const Bytes bytes = TakeShort();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  Bytes rest_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FUZZ_INPUT_PARTS_H_
