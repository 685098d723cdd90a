// Goal: arrays of the figures of a GPU are compared byte by byte, and a period stands for no other.
#include "bench/on_device/repeated_bytes.h"

#include <cmath>
#include <cstring>

#include "tests/support/catch.h"

namespace lmdbio::figures {
namespace {

using sync::DataType;

TEST_CASE("An array repeats its period, also in part", "[figures]") {
  std::mt19937_64 random(1);
  const auto period = RandomNumbers(DataType::kInt64, 24, random);
  std::vector<std::byte> bytes(65);
  Repeat(period, bytes);
  for (size_t i = 0; i < bytes.size(); ++i) REQUIRE(bytes[i] == period[i % 24]);
  CHECK(CheckRepeats(period, bytes, "a sum"));
  for (const size_t at : {size_t{0}, size_t{23}, size_t{24}, size_t{64}}) {
    auto wrong = bytes;
    wrong[at] ^= std::byte{1};
    CHECK(CheckRepeats(period, wrong, "a sum").error().message() ==
          "a sum has a wrong byte at offset " + std::to_string(at));
  }
}

TEST_CASE("A period is bounded, and holds whole numbers of all types", "[figures]") {
  CHECK(PeriodBytes(4096) == 4096);
  CHECK(PeriodBytes(4100) == 4096);
  const uint64_t bound = PeriodBytes(uint64_t{1} << 30);
  CHECK(bound < uint64_t{2} << 20);
  CHECK(bound % 16 == 0);
  // A launch takes powers of two of words at a time, so a shift by one of them shows.
  for (uint64_t shift = 16; shift < uint64_t{1} << 40; shift *= 2) CHECK(shift % bound != 0);
}

TEST_CASE("Sums of the numbers are finite", "[figures]") {
  std::mt19937_64 random(2);
  const auto halves = RandomNumbers(DataType::kFloat16, 4096, random);
  const auto singles = RandomNumbers(DataType::kFloat32, 4096, random);
  for (size_t i = 0; i < 2048; ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, &halves[2 * i], sizeof(bits));
    // 8 of them stay below 65,504: the exponent is that of 1,024 at most.
    CHECK((bits >> 10 & 0x1F) <= 15 + 9);
  }
  for (size_t i = 0; i < 1024; ++i) {
    float number = 0;
    std::memcpy(&number, &singles[4 * i], sizeof(number));
    CHECK(std::abs(number) <= 1000);
  }
}

TEST_CASE("Sizes are told in the largest unit that is whole", "[figures]") {
  CHECK(SizeText(8) == "8 B");
  CHECK(SizeText(1024) == "1 KiB");
  CHECK(SizeText(1536) == "1536 B");
  CHECK(SizeText(uint64_t{64} << 20) == "64 MiB");
}

}  // namespace
}  // namespace lmdbio::figures
