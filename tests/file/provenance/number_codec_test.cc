// Oracle: the numbers themselves.
#include "lmdbio/file/provenance/number_codec.h"

#include <random>

#include "tests/support/catch.h"

namespace lmdbio::file {
namespace {

std::vector<uint64_t> RoundTrip(const std::vector<uint64_t>& numbers,
                                size_t* size_bytes = nullptr) {
  ByteWriter out;
  EncodeNumbers(numbers, out);
  if (size_bytes != nullptr) *size_bytes = out.bytes().size();
  ByteReader in(out.bytes());
  std::vector<uint64_t> decoded;
  REQUIRE(DecodeNumbers(in, numbers.size(), decoded));
  REQUIRE(in.at_end());
  return decoded;
}

TEST_CASE("DecodeNumbers returns the encoded numbers", "[provenance]") {
  std::mt19937_64 random(3);
  for (const uint32_t bits : {0U, 1U, 8U, 9U, 16U, 33U, 64U}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{127}, size_t{5000}}) {
      INFO(count << " numbers of " << bits << " bits");
      std::vector<uint64_t> numbers(count);
      for (uint64_t& number : numbers) number = bits == 0 ? 0 : random() >> (64 - bits);
      CHECK(RoundTrip(numbers) == numbers);
    }
  }
}

TEST_CASE("Zeros take a byte, and numbers of 20 bits little more than that", "[provenance]") {
  size_t size_bytes = 0;
  RoundTrip(std::vector<uint64_t>(100'000, 0), &size_bytes);
  CHECK(size_bytes == 1);
  std::mt19937_64 random(3);
  std::vector<uint64_t> numbers(100'000);
  for (uint64_t& number : numbers) number = random() >> 44;
  RoundTrip(numbers, &size_bytes);
  CHECK(size_bytes < numbers.size() * 21 / 8);
}

TEST_CASE("ZigZag maps small differences of either sign to small numbers", "[provenance]") {
  for (const uint64_t difference : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
    CHECK(UnZigZag(ZigZag(difference)) == difference);
  }
  CHECK(ZigZag(1) == 2);
  CHECK(ZigZag(~uint64_t{0}) == 1);
}

TEST_CASE("A damaged list is refused and allocates no more than its count",
          "[provenance][damage]") {
  std::mt19937_64 random(5);
  std::vector<uint64_t> numbers(1000);
  for (uint64_t& number : numbers) number = random() >> 40;
  ByteWriter out;
  EncodeNumbers(numbers, out);
  for (size_t length = 0; length < out.bytes().size(); ++length) {
    ByteReader in(Bytes(out.bytes()).first(length));
    std::vector<uint64_t> decoded;
    REQUIRE_FALSE(DecodeNumbers(in, numbers.size(), decoded).has_value());
  }
  ByteReader in(out.bytes());
  std::vector<uint64_t> decoded;
  CHECK_FALSE(DecodeNumbers(in, numbers.size() + 1, decoded).has_value());
  ByteReader again(out.bytes());
  CHECK_FALSE(DecodeNumbers(again, kNumbersMax + 1, decoded).has_value());
}

}  // namespace
}  // namespace lmdbio::file
