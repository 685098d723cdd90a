#include "lmdbio/sync/reduce/reduce.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "lmdbio/base/digest.h"
#include "lmdbio/sync/reduce/reduce_dispatch.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::sync {
namespace {

using test::kOps;
using test::kTypes;

// Any bits: NaNs, infinities and denormals among them.
std::string AnyBits(test::Random& random, size_t bytes) { return random.BytesOf(bytes); }

const std::byte* At(const std::string& text, size_t offset) {
  return reinterpret_cast<const std::byte*>(text.data()) + offset;
}

ReduceAllLoop LoopOf(const ReduceKernels& kernels, DataType type, ReduceOp op) {
  return kernels.reduce[static_cast<size_t>(type) - 1].by_op[static_cast<size_t>(op) - 1];
}

struct Sources {
  // Each begins at a different distance from an aligned address.
  Sources(DataType type, size_t source_count, size_t count, uint64_t seed) {
    test::Random random(seed);
    const size_t bytes = count * ElementBytes(type);
    for (size_t i = 0; i < source_count; ++i) {
      texts.push_back(AnyBits(random, bytes + i + 1));
    }
    for (size_t i = 0; i < source_count; ++i) pointers.push_back(At(texts[i], i + 1));
  }
  std::vector<std::string> texts;
  std::vector<const std::byte*> pointers;
};

// A scale may be applied to any bits, so the scales are far from the ends of float32.
constexpr std::array kScales{1.0, 1.0 / 3, 0.25, -0.7};

void CheckAgainstOracle(DataType type, const Reduction& reduction, size_t source_count,
                        size_t count) {
  CAPTURE(NameOf(type), NameOf(reduction.op), reduction.scale, source_count, count);
  const Sources sources(type, source_count, count, count * 31 + source_count);
  const auto expected = test::ReduceSlowly(type, reduction, sources.pointers, count);
  std::vector<std::byte> place(expected.size() + 8, std::byte{0x5A});
  std::byte* const into = place.data() + 3;
  ReduceAll(type, reduction, into, sources.pointers, count);
  CHECK(test::FirstDifference(type, into, expected.data(), count) == count);
  CHECK(place[2] == std::byte{0x5A});
  CHECK(into[expected.size()] == std::byte{0x5A});

  if (!IsFloating(type) && reduction.scale != 1) return;  // not in the kernels
  std::vector<std::byte> portable(expected.size() + 1);
  LoopOf(PortableKernels(), type, reduction.op)(portable.data() + 1, sources.pointers.data(),
                                                source_count, count, reduction.scale);
  CHECK(test::FirstDifference(type, portable.data() + 1, expected.data(), count) == count);
}

TEST_CASE("ReduceAll gives the same as one number at a time", "[reduce]") {
  const size_t source_count = GENERATE(1, 2, 3, 4, 5, 8, 17);
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const size_t count : {0, 1, 2, 3, 7, 8, 9, 15, 31, 32, 33, 63, 64, 65, 127, 1000}) {
        for (const double scale : kScales) {
          CheckAgainstOracle(type, {op, scale}, source_count, count);
        }
      }
    }
  }
}

// Except for the bits of a NaN that several sources give: these depend on the order of the
// operands, which compilers may swap, as GCC 14 does.
TEST_CASE("Scaled reductions are the same on every processor", "[reduce]") {
  if (BetterKernels() == nullptr) return;
  const DataType type =
      GENERATE(DataType::kFloat32, DataType::kFloat64, DataType::kFloat16, DataType::kBFloat16);
  const size_t source_count = GENERATE(1, 2, 3, 5);
  const size_t count = 50'021;
  const Sources sources(type, source_count, count, source_count);
  const size_t bytes = count * ElementBytes(type);
  for (const ReduceOp op : kOps) {
    for (const double scale : kScales) {
      CAPTURE(NameOf(type), NameOf(op), scale, source_count);
      std::vector<std::byte> portable(bytes);
      std::vector<std::byte> better(bytes);
      LoopOf(PortableKernels(), type, op)(portable.data(), sources.pointers.data(), source_count,
                                          count, scale);
      LoopOf(*BetterKernels(), type, op)(better.data(), sources.pointers.data(), source_count,
                                         count, scale);
      CHECK(test::FirstDifference(type, portable.data(), better.data(), count) == count);
      if (source_count == 1) CHECK(portable == better);
    }
  }
}

TEST_CASE("ReduceAll and Reduce write over one of their sources", "[reduce]") {
  const double scale = GENERATE(1.0, 1.0 / 3);
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      CAPTURE(NameOf(type), NameOf(op), scale);
      const Reduction reduction(op, scale);
      const size_t count = 77;
      for (const size_t target : {0, 1, 2}) {
        Sources sources(type, 3, count, 5);
        const auto expected = test::ReduceSlowly(type, reduction, sources.pointers, count);
        auto* into = reinterpret_cast<std::byte*>(sources.texts[target].data()) + target + 1;
        ReduceAll(type, reduction, into, sources.pointers, count);
        CHECK(test::FirstDifference(type, into, expected.data(), count) == count);
      }
      Sources sources(type, 2, count, 6);
      const auto expected = test::ReduceSlowly(type, reduction, sources.pointers, count);
      auto* into = reinterpret_cast<std::byte*>(sources.texts[0].data()) + 1;
      Reduce(type, reduction, into, sources.pointers[1], count);
      CHECK(test::FirstDifference(type, into, expected.data(), count) == count);
    }
  }
}

// Every float16 widens and narrows to itself, and all kernels give a NaN the same bits.
TEST_CASE("Half types keep every value, on every processor the same", "[reduce]") {
  const DataType type = GENERATE(DataType::kFloat16, DataType::kBFloat16);
  const auto& kind = type == DataType::kFloat16 ? test::kHalf : test::kBrainHalf;
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const auto* const source = reinterpret_cast<const std::byte*>(all.data());
  std::vector<uint16_t> portable(all.size());
  LoopOf(PortableKernels(), type, ReduceOp::kSum)(reinterpret_cast<std::byte*>(portable.data()),
                                                  &source, 1, all.size(), 1);
  size_t wrong_count = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_nan = std::isnan(test::Decode(kind, all[i]));
    const bool stays_nan = std::isnan(test::Decode(kind, portable[i]));
    wrong_count += is_nan ? !stays_nan : portable[i] != all[i];
  }
  CHECK(wrong_count == 0);
  if (BetterKernels() == nullptr) return;
  std::vector<uint16_t> better(all.size());
  LoopOf(*BetterKernels(), type, ReduceOp::kSum)(reinterpret_cast<std::byte*>(better.data()),
                                                 &source, 1, all.size(), 1);
  CHECK(better == portable);
}

// Products of halves hit ties, denormals and overflow.
TEST_CASE("Half types round to the nearest even, on every processor the same", "[reduce]") {
  const DataType type = GENERATE(DataType::kFloat16, DataType::kBFloat16);
  const ReduceOp op = GENERATE(ReduceOp::kSum, ReduceOp::kProduct);
  const size_t count = 200'000;
  const Sources sources(type, 2, count, 99);
  const auto expected = test::ReduceSlowly(type, op, sources.pointers, count);
  std::vector<std::byte> portable(expected.size());
  LoopOf(PortableKernels(), type, op)(portable.data(), sources.pointers.data(), 2, count, 1);
  CHECK(test::FirstDifference(type, portable.data(), expected.data(), count) == count);
  if (BetterKernels() == nullptr) return;
  std::vector<std::byte> better(expected.size());
  LoopOf(*BetterKernels(), type, op)(better.data(), sources.pointers.data(), 2, count, 1);
  CHECK(test::FirstDifference(type, better.data(), expected.data(), count) == count);
}

// Numbers whose sums and products are rounded: of either sign, between 0.5 and 2.
template <typename Word>
std::string NearOne(test::Random& random, size_t count, Word fixed_bits, Word free_bits) {
  std::string text(count * sizeof(Word), '\0');
  for (size_t i = 0; i < count; ++i) {
    const Word word = static_cast<Word>(fixed_bits | (random.Next() & free_bits));
    std::memcpy(text.data() + i * sizeof(Word), &word, sizeof(Word));
  }
  return text;
}

std::string NearOne(DataType type, test::Random& random, size_t count) {
  switch (type) {
    case DataType::kFloat32:
      return NearOne<uint32_t>(random, count, 0x3F00'0000, 0x80FF'FFFF);
    case DataType::kFloat64:
      return NearOne<uint64_t>(random, count, 0x3FE0'0000'0000'0000, 0x801F'FFFF'FFFF'FFFF);
    case DataType::kFloat16:
      return NearOne<uint16_t>(random, count, 0x3800, 0x87FF);
    case DataType::kBFloat16:
      return NearOne<uint16_t>(random, count, 0x3F00, 0x80FF);
    default:
      return AnyBits(random, count * ElementBytes(type));
  }
}

// Oracle: the digest of the same results on x86-64, with and without AVX2, and on aarch64.
TEST_CASE("Reductions have the same bits on every kind of processor", "[reduce]") {
  constexpr size_t kCount = 1003;
  uint64_t digest = 0;
  for (const DataType type : kTypes) {
    test::Random random(static_cast<uint64_t>(type));
    std::vector<std::string> texts;
    std::vector<const std::byte*> sources;
    for (int i = 0; i < 5; ++i) texts.push_back(NearOne(type, random, kCount));
    for (const std::string& text : texts) sources.push_back(At(text, 0));
    for (const ReduceOp op : kOps) {
      for (const double scale : kScales) {
        std::string result(texts[0].size(), '\0');
        ReduceAll(type, {op, scale}, reinterpret_cast<std::byte*>(result.data()), sources, kCount);
        digest = TextDigest(result, digest);
      }
    }
  }
  CHECK(digest == 0x8A19'4864'8782'9B1D);
}

template <typename T>
T One(DataType type, const Reduction& reduction, std::vector<T> values) {
  std::vector<const std::byte*> sources;
  for (const T& value : values) sources.push_back(reinterpret_cast<const std::byte*>(&value));
  T result{};
  ReduceAll(type, reduction, reinterpret_cast<std::byte*>(&result), sources, 1);
  return result;
}

TEST_CASE("Half types are rounded once, after all sources", "[reduce]") {
  // 2048 + 1 is a tie in float16, and goes back to 2048 each time; together they are 2056.
  std::vector<uint16_t> values{0x6800};
  for (int i = 0; i < 8; ++i) values.push_back(0x3C00);
  CHECK(test::Decode(test::kHalf, One(DataType::kFloat16, ReduceOp::kSum, values)) == 2056);
}

TEST_CASE("Half types are scaled before they are rounded", "[reduce]") {
  // Their sum is beyond float16; their average is not.
  const Reduction average(ReduceOp::kSum, 1.0 / 3);
  const std::vector<uint16_t> large(3, 0x7800);  // 32768
  CHECK(test::Decode(test::kHalf, One(DataType::kFloat16, average, large)) == 32768);
  // 2048 + 1 is a tie in float16: rounded first, it would be 1536.
  const std::vector<uint16_t> tie{0x6800, 0x3C00};
  CHECK(test::Decode(test::kHalf, One(DataType::kFloat16, {ReduceOp::kSum, 0.75}, tie)) == 1537);
}

TEST_CASE("Integers wrap around", "[reduce]") {
  constexpr int32_t kMax32 = std::numeric_limits<int32_t>::max();
  constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();
  CHECK(One<int32_t>(DataType::kInt32, ReduceOp::kSum, {kMax32, 1}) ==
        std::numeric_limits<int32_t>::min());
  CHECK(One<int64_t>(DataType::kInt64, ReduceOp::kProduct, {kMax64, 2}) == -2);
  CHECK(One<int32_t>(DataType::kInt32, ReduceOp::kMin, {-1, 1, 0}) == -1);
  CHECK(One<int64_t>(DataType::kInt64, ReduceOp::kMax, {-1, 1, 0}) == 1);
}

TEST_CASE("A NaN stays, wherever it is", "[reduce]") {
  const auto nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : kOps) {
    CHECK(std::isnan(One<float>(DataType::kFloat32, op, {nan, 1, 2})));
    CHECK(std::isnan(One<float>(DataType::kFloat32, op, {1, nan, 2})));
    CHECK(std::isnan(One<float>(DataType::kFloat32, op, {1, 2, nan})));
  }
}

template <typename T>
std::vector<T> Scaled(DataType type, double scale, std::vector<T> values) {
  std::vector<T> apart(values.size());
  auto* const place = reinterpret_cast<std::byte*>(values.data());
  Scale(type, scale, reinterpret_cast<std::byte*>(apart.data()), place, values.size());
  Scale(type, scale, place, place, values.size());
  CHECK(apart == values);
  return values;
}

TEST_CASE("Scale multiplies", "[reduce]") {
  for (const size_t count : {0, 1, 3, 8, 9, 33}) {
    std::vector<float> values(count, 3.0F);
    CHECK(Scaled(DataType::kFloat32, 0.1, values) == std::vector<float>(count, 3.0F * 0.1F));
    CHECK(Scaled(DataType::kFloat64, 0.1, std::vector<double>(count, 3.0)) ==
          std::vector<double>(count, 3 * 0.1));
    CHECK(Scaled(DataType::kFloat16, 0.5, std::vector<uint16_t>(count, 0x3C00)) ==
          std::vector<uint16_t>(count, 0x3800));
    CHECK(Scaled(DataType::kBFloat16, 0.5, std::vector<uint16_t>(count, 0x3F80)) ==
          std::vector<uint16_t>(count, 0x3F00));
  }
}

TEST_CASE("Scale cuts integers towards zero, and stays at the ends", "[reduce]") {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  using Numbers = std::vector<int64_t>;
  CHECK(Scaled(DataType::kInt64, 0.5, Numbers{7, -7, 0, kMax, kMin}) ==
        Numbers{3, -3, 0, kMax / 2, kMin / 2});
  CHECK(Scaled(DataType::kInt64, -1.0, Numbers{7, -7, kMax, kMin}) == Numbers{-7, 7, -kMax, kMax});
  CHECK(Scaled(DataType::kInt64, 1e300, Numbers{1, -1, 0}) == Numbers{kMax, kMin, 0});
  CHECK(Scaled(DataType::kInt64, 1e-300, Numbers{kMax, kMin}) == Numbers{0, 0});
  CHECK(Scaled(DataType::kInt64, 0.0, Numbers{kMax, kMin}) == Numbers{0, 0});
  // A double cannot hold this number exactly.
  CHECK(Scaled(DataType::kInt64, 2.0, Numbers{(int64_t{1} << 61) + 1}) ==
        Numbers{(int64_t{1} << 62) + 2});
  CHECK(Scaled(DataType::kInt32, 0.25, std::vector<int32_t>{9, -9, 3}) ==
        std::vector<int32_t>{2, -2, 0});
  CHECK(Scaled(DataType::kInt32, 3.0, std::vector<int32_t>{1 << 30, -(1 << 30)}) ==
        std::vector<int32_t>{std::numeric_limits<int32_t>::max(),
                             std::numeric_limits<int32_t>::min()});
}

}  // namespace
}  // namespace lmdbio::sync
