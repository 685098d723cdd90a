#include "lmdbio/kernels/kernel_numbers.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/kernels/kernel_bodies.h"
#include "tests/support/catch.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::kernels {
namespace {

// All halves, and the floats between each two of them: the middle, and its neighbours.
template <typename Number>
uint64_t CountWrong(const test::SmallFloat& kind) {
  uint64_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double expected = test::Decode(kind, half);
    const float found = Number::Widen(half);
    if (std::isnan(expected)) {
      wrong += std::isnan(found) && std::isnan(Number::Widen(Number::Narrow(found))) ? 0 : 1;
      continue;
    }
    wrong += static_cast<double>(found) == expected && Number::Narrow(found) == half ? 0 : 1;
    const auto next = static_cast<float>(test::Decode(kind, static_cast<uint16_t>(half + 1)));
    if (!std::isfinite(found) || !std::isfinite(next)) continue;
    const float middle = (found + next) / 2;
    for (const float number : {middle, std::nextafter(middle, found), std::nextafter(middle, next),
                               std::nextafter(found, next)}) {
      const uint16_t narrow = test::Encode(kind, static_cast<double>(number));
      wrong += Number::Narrow(number) == narrow ? 0 : 1;
    }
  }
  return wrong;
}

TEST_CASE("Halves of both kinds are converted as IEEE 754 says", "[kernel_numbers]") {
  CHECK(CountWrong<Float16Number>(test::kHalf) == 0);
  CHECK(CountWrong<BFloat16Number>(test::kBrainHalf) == 0);
}

TEST_CASE("Any float is rounded to halves, and NaNs stay NaNs", "[kernel_numbers]") {
  test::Random random(5);
  for (int i = 0; i < 300'000; ++i) {
    const auto bits = static_cast<uint32_t>(random.Next());
    const auto number = sync::SameBits<float>(bits);
    const uint16_t half = Float16Number::Narrow(number);
    const uint16_t brain = BFloat16Number::Narrow(number);
    const bool is_right =
        std::isnan(number)
            ? std::isnan(Float16Number::Widen(half)) && std::isnan(BFloat16Number::Widen(brain))
            : half == test::Encode(test::kHalf, static_cast<double>(number)) &&
                  brain == test::Encode(test::kBrainHalf, static_cast<double>(number));
    if (!is_right) FAIL_CHECK(bits);
  }
}

TEST_CASE("The elements of a word keep their order", "[kernel_numbers]") {
  KernelWord word;
  const uint16_t halves[8] = {0x3C00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600, 0x4700, 0x4800};
  std::memcpy(&word, halves, sizeof(word));
  WordNumbers<Float16Number> numbers(word);
  for (int i = 0; i < 8; ++i) CHECK(numbers.values[i] == static_cast<float>(i + 1));
  CHECK(std::memcmp(&word, halves, sizeof(word)) == 0);
  const KernelWord again = numbers.Word();
  CHECK(std::memcmp(&again, halves, sizeof(again)) == 0);
}

}  // namespace
}  // namespace lmdbio::kernels
