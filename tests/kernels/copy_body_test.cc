// Copies from any address to any other. Oracle: memcpy; with scales, Scale.

#include "lmdbio/kernels/copy_body.h"

#include <cstring>
#include <string>
#include <vector>

#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/sync/reduce/reduce.h"
#include "tests/kernels/kernel_bodies.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::kernels {
namespace {

using sync::DataType;
using test::PlacedBytes;
using test::Random;

template <typename Copy>
void CopyByAll(const PlacedBytes& to, const PlacedBytes& from, const Copy& copy, uint32_t threads) {
  for (uint32_t thread = threads; thread-- > 0;) {
    CopyTogether(to.data(), from.data(), from.size_bytes(), copy, {thread, threads});
  }
}

TEST_CASE("Bytes are copied from any address to any other", "[copy_body]") {
  Random random(1);
  const std::string bytes = random.BytesOf(400);
  for (size_t to_offset = 0; to_offset < 16; ++to_offset) {
    for (size_t from_offset = 0; from_offset < 16; ++from_offset) {
      for (size_t size_bytes = 0; size_bytes <= 150; ++size_bytes) {
        const PlacedBytes from(from_offset, size_bytes, PlacedBytes::Edges::kAllocation);
        const PlacedBytes to(to_offset, size_bytes, PlacedBytes::Edges::kGuards);
        std::memcpy(from.data(), bytes.data(), size_bytes);
        const auto threads = static_cast<uint32_t>(random.Between(1, 9));
        CopyByAll(to, from, PlainCopy{}, threads);
        const bool is_right =
            std::memcmp(to.data(), bytes.data(), size_bytes) == 0 && to.AreEdgesWhole();
        if (!is_right) {
          FAIL_CHECK(size_bytes << " bytes from " << from_offset << " to " << to_offset << " by "
                                << threads << " threads");
        }
      }
    }
  }
}

TEST_CASE("Words of a copy lie inside its source", "[copy_body]") {
  for (size_t to_offset = 0; to_offset < 16; ++to_offset) {
    for (size_t from_offset = 0; from_offset < 16; ++from_offset) {
      const PlacedBytes from(from_offset, 100, PlacedBytes::Edges::kAllocation);
      const PlacedBytes to(to_offset, 100, PlacedBytes::Edges::kAllocation);
      for (size_t size_bytes = 0; size_bytes <= 100; ++size_bytes) {
        const CopySplit split = SplitCopy(to.data(), from.data(), size_bytes, 1);
        const uint64_t read = split.words + (split.words > 0 && split.shift > 0 ? 1 : 0);
        const bool is_inside =
            split.shift <= split.head && split.head - split.shift + read * kWordBytes <= size_bytes;
        if (!is_inside) {
          FAIL_CHECK(size_bytes << " bytes from " << from_offset << " to " << to_offset);
        }
      }
    }
  }
}

TEST_CASE("Most of a copy is whole words", "[copy_body]") {
  for (size_t to_offset = 0; to_offset < 16; ++to_offset) {
    for (size_t from_offset = 0; from_offset < 16; ++from_offset) {
      const PlacedBytes from(from_offset, 1000, PlacedBytes::Edges::kAllocation);
      const PlacedBytes to(to_offset, 1000, PlacedBytes::Edges::kAllocation);
      const CopySplit split = SplitCopy(to.data(), from.data(), 1000, 1);
      CHECK(split.words >= (1000 - 31 - 31) / kWordBytes);
      CHECK(split.head <= 31);
    }
  }
}

template <typename Number>
void CheckScaled(DataType type, size_t to_offset, size_t from_offset, size_t count,
                 Random& random) {
  const double scale = random.Below(2) == 0 ? 1.0 / 3 : -2.5;
  const std::string numbers = test::NumbersOf(random, type, count);
  const PlacedBytes from(from_offset, numbers.size(), PlacedBytes::Edges::kAllocation);
  const PlacedBytes to(to_offset, numbers.size(), PlacedBytes::Edges::kGuards);
  std::memcpy(from.data(), numbers.data(), numbers.size());
  std::vector<std::byte> expected(numbers.size());
  sync::Scale(type, scale, expected.data(), from.data(), count);
  const KernelScale planned = test::Good(PlanScale(type, scale));
  CopyByAll(to, from, ScaledCopy<Number>{planned}, 3);
  const bool is_right =
      test::FirstDifference(type, to.data(), expected.data(), count) == count && to.AreEdgesWhole();
  if (!is_right) {
    FAIL_CHECK(count << " of " << NameOf(type) << " * " << scale << " from " << from_offset
                     << " to " << to_offset);
  }
}

TEST_CASE("Numbers are scaled on the way, at any address", "[copy_body]") {
  Random random(2);
  for (size_t to_offset = 0; to_offset < 16; ++to_offset) {
    for (size_t from_offset = 0; from_offset < 16; ++from_offset) {
      for (const size_t count : {0, 1, 2, 3, 5, 8, 13, 21, 40}) {
        CheckScaled<Float32Number>(DataType::kFloat32, to_offset, from_offset, count, random);
        CheckScaled<Float64Number>(DataType::kFloat64, to_offset, from_offset, count, random);
        CheckScaled<Float16Number>(DataType::kFloat16, to_offset, from_offset, count, random);
        CheckScaled<BFloat16Number>(DataType::kBFloat16, to_offset, from_offset, count, random);
        CheckScaled<Int32Number>(DataType::kInt32, to_offset, from_offset, count, random);
        CheckScaled<Int64Number>(DataType::kInt64, to_offset, from_offset, count, random);
      }
    }
  }
}

TEST_CASE("Numbers are scaled in place", "[copy_body]") {
  Random random(3);
  for (size_t offset = 0; offset < 16; ++offset) {
    const size_t count = 77;
    const std::string numbers = test::NumbersOf(random, DataType::kFloat16, count);
    const PlacedBytes memory(offset, numbers.size(), PlacedBytes::Edges::kGuards);
    std::memcpy(memory.data(), numbers.data(), numbers.size());
    std::vector<std::byte> expected(numbers.size());
    sync::Scale(DataType::kFloat16, 0.3, expected.data(), memory.data(), count);
    const KernelScale planned = test::Good(PlanScale(DataType::kFloat16, 0.3));
    CopyByAll(memory, memory, ScaledCopy<Float16Number>{planned}, 5);
    CHECK(test::FirstDifference(DataType::kFloat16, memory.data(), expected.data(), count) ==
          count);
    CHECK(memory.AreEdgesWhole());
  }
}

TEST_CASE("Memory is cleared at any address", "[copy_body]") {
  for (size_t offset = 0; offset < 16; ++offset) {
    for (size_t size_bytes = 0; size_bytes <= 100; ++size_bytes) {
      const PlacedBytes memory(offset, size_bytes, PlacedBytes::Edges::kGuards);
      for (uint32_t thread = 0; thread < 3; ++thread) {
        ClearTogether(memory.data(), size_bytes, {thread, 3});
      }
      const std::string zeros(size_bytes, '\0');
      CHECK((std::memcmp(memory.data(), zeros.data(), size_bytes) == 0 && memory.AreEdgesWhole()));
    }
  }
}

}  // namespace
}  // namespace lmdbio::kernels
