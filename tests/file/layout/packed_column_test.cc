// Oracle: the numbers themselves.
#include "lmdbio/file/layout/packed_column.h"

#include <functional>
#include <random>
#include <vector>

#include "tests/support/catch.h"

namespace lmdbio::file {
namespace {

void CheckColumn(const std::vector<uint64_t>& numbers, uint64_t* memory_bytes = nullptr) {
  PackedColumnBuilder builder;
  for (const uint64_t number : numbers) builder.Append(number);
  REQUIRE(builder.size() == numbers.size());
  const PackedColumn column = builder.Finish();
  REQUIRE(column.size() == numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) REQUIRE(column[i] == numbers[i]);
  if (memory_bytes != nullptr) *memory_bytes = column.memory_bytes();
}

TEST_CASE("PackedColumn returns the appended numbers", "[layout]") {
  std::mt19937_64 random(1);
  const std::function<uint64_t(uint64_t)> shapes[] = {
      [](uint64_t) { return uint64_t{3080}; },
      [](uint64_t i) { return i * 4096 + 16; },
      [](uint64_t i) { return (i + i / 70) * 4096 + 16; },
      [](uint64_t i) { return (1'000'000 - i) * 4096; },
      [&](uint64_t) { return random() % 1000; },
      [&](uint64_t) { return random() >> 1; },
      [&](uint64_t) { return (random() % (1 << 30)) << 12; },
      [](uint64_t i) { return i % 128 == 77 ? uint64_t{1} << 62 : i; },
  };
  for (const auto& shape : shapes) {
    for (const uint64_t count : {0U, 1U, 2U, 127U, 128U, 129U, 1000U}) {
      std::vector<uint64_t> numbers(count);
      for (uint64_t i = 0; i < count; ++i) numbers[i] = shape(i);
      CheckColumn(numbers);
    }
  }
}

TEST_CASE("PackedColumn takes hardly any memory for regular columns", "[layout]") {
  std::vector<uint64_t> numbers(100'000);
  uint64_t memory_bytes = 0;
  for (uint64_t i = 0; i < numbers.size(); ++i) numbers[i] = i * 4096 + 16;
  CheckColumn(numbers, &memory_bytes);
  CHECK(memory_bytes < numbers.size());
  for (uint64_t i = 0; i < numbers.size(); ++i) numbers[i] = (i + i / 70) * 4096 + 16;
  CheckColumn(numbers, &memory_bytes);
  CHECK(memory_bytes < numbers.size());
}

TEST_CASE("PackedColumn gives random numbers the bits of their range", "[layout]") {
  std::mt19937_64 random(2);
  for (const uint32_t bits : {1U, 4U, 10U, 30U}) {
    for (const uint32_t zeros : {0U, 12U}) {
      CAPTURE(bits, zeros);
      std::vector<uint64_t> numbers(128 * 50);
      for (uint64_t& number : numbers) number = 77 + (random() % (uint64_t{1} << bits) << zeros);
      uint64_t memory_bytes = 0;
      CheckColumn(numbers, &memory_bytes);
      // Each block of 128 numbers has a head.
      CHECK(memory_bytes <= numbers.size() * bits / 8 + numbers.size() / 128 * 32);
    }
  }
}

}  // namespace
}  // namespace lmdbio::file
