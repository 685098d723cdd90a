// The kernel of reductions, run by the host. Oracle: ReduceAll, which the host uses.

#include "lmdbio/kernels/reduce_body.h"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/sync/reduce/reduce.h"
#include "tests/kernels/kernel_bodies.h"
#include "tests/load/loader/matrix_share.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::kernels {
namespace {

using device::DeviceSpan;
using sync::DataType;
using sync::ReduceOp;
using test::PlacedBytes;
using test::Random;

// The scale 1e300 is infinite as float32, and integers are limited by it.
constexpr std::array kScales{1.0, 1.0 / 3, 0.25, -0.7, 1e300, 3e-9};

struct ReduceCase {
  DataType type = DataType::kFloat32;
  sync::Reduction reduction = ReduceOp::kSum;
  size_t source_count = 1;
  size_t count = 0;
  // Of the first source and of the distances from array to array, modulo 16. The last array is the
  // first target.
  size_t offset = 0;
  size_t offset_step = 0;
  bool is_in_place = false;  // the first target is the last source
  size_t target_count = 1;
  uint32_t blocks = 1;
  uint32_t threads = 1;
};

// Whether all targets have the bits that ReduceAll gives, and no other byte has changed.
bool IsRight(const ReduceCase& given, Random& random) {
  const size_t size_bytes = given.count * sync::ElementBytes(given.type);
  std::vector<PlacedBytes> sources;
  std::vector<PlacedBytes> targets;
  size_t offset = given.offset;
  for (size_t i = 0; i < given.source_count; ++i) {
    const bool is_target = given.is_in_place && i + 1 == given.source_count;
    sources.emplace_back(offset % 16, size_bytes,
                         is_target ? PlacedBytes::Edges::kGuards : PlacedBytes::Edges::kAllocation);
    const std::string numbers = test::NumbersOf(random, given.type, given.count);
    std::memcpy(sources.back().data(), numbers.data(), size_bytes);
    offset += given.offset_step;
  }
  for (size_t i = given.is_in_place ? 1 : 0; i < given.target_count; ++i) {
    targets.emplace_back(offset % 16, size_bytes, PlacedBytes::Edges::kGuards);
    offset += given.offset_step;
  }
  std::vector<const std::byte*> pointers;
  std::vector<DeviceSpan> source_spans;
  std::vector<DeviceSpan> target_spans;
  for (const PlacedBytes& source : sources) {
    pointers.push_back(source.data());
    source_spans.push_back(source.span());
  }
  if (given.is_in_place) target_spans.push_back(sources.back().span());
  for (const PlacedBytes& target : targets) target_spans.push_back(target.span());

  std::vector<std::byte> expected(size_bytes);
  sync::ReduceAll(given.type, given.reduction, expected.data(), pointers, given.count);
  const ReduceTable table = test::Good(PlanReduce({.sources = source_spans,
                                                   .targets = target_spans,
                                                   .count = given.count,
                                                   .type = given.type,
                                                   .reduction = given.reduction}));
  test::RunBody(fmt::format("lmdbio_reduce_{}_{}", NameOf(given.reduction.op), NameOf(given.type)),
                table, given.blocks, given.threads);
  for (const DeviceSpan& target : target_spans) {
    const auto* const found = reinterpret_cast<const std::byte*>(target.begin.value);
    if (test::FirstDifference(given.type, found, expected.data(), given.count) != given.count) {
      return false;
    }
  }
  for (const PlacedBytes& source : sources) {
    if (!source.AreEdgesWhole()) return false;
  }
  for (const PlacedBytes& target : targets) {
    if (!target.AreEdgesWhole()) return false;
  }
  return true;
}

std::string NameOfCase(const ReduceCase& given) {
  return fmt::format(
      "{} {} * {}, {} sources of {} elements, {} targets{}, offsets {} + {} i, {} blocks of {}",
      NameOf(given.reduction.op), NameOf(given.type), given.reduction.scale, given.source_count,
      given.count, given.target_count, given.is_in_place ? " in place" : "", given.offset,
      given.offset_step, given.blocks, given.threads);
}

void Check(const ReduceCase& given, Random& random) {
  if (IsRight(given, random)) return;  // an INFO for each case would take most of the time
  FAIL_CHECK(NameOfCase(given));
}

TEST_CASE("Reductions give the bits of ReduceAll", "[reduce_body]") {
  const DataType type = GENERATE(from_range(test::kEachType));
  Random random(static_cast<uint64_t>(type));
  test::MatrixShare share(4);
  for (const ReduceOp op : test::kEachOp) {
    for (size_t source_count = 1; source_count <= 9; ++source_count) {
      for (size_t count = 0; count <= 70; ++count) {
        for (size_t offset = 0; offset < 16; ++offset) {
          if (share.LeavesOut()) continue;
          Check({.type = type,
                 .reduction = {op, kScales[random.Below(kScales.size())]},
                 .source_count = source_count,
                 .count = count,
                 .offset = offset,
                 .offset_step = random.Below(4) == 0 ? random.Below(16) : 0,
                 .is_in_place = random.Below(4) == 0,
                 .target_count = random.Between(1, 3),
                 .blocks = static_cast<uint32_t>(random.Between(1, 3)),
                 .threads = static_cast<uint32_t>(random.Between(1, 5))},
                random);
        }
      }
    }
  }
}

TEST_CASE("Reductions of many elements give the bits of ReduceAll", "[reduce_body]") {
  const DataType type = GENERATE(from_range(test::kEachType));
  Random random(static_cast<uint64_t>(type) + 100);
  const size_t element_bytes = sync::ElementBytes(type);
  for (const ReduceOp op : test::kEachOp) {
    for (const size_t count : {65'535, 65'536, 65'537}) {
      for (const size_t offset : {size_t{0}, element_bytes, size_t{1}}) {
        Check({.type = type,
               .reduction = {op, kScales[random.Below(kScales.size())]},
               .source_count = random.Between(1, 3),
               .count = count,
               .offset = offset,
               .is_in_place = offset == 0,
               .blocks = 3,
               .threads = 64},
              random);
      }
    }
  }
}

TEST_CASE("A reduction has up to 64 sources and 64 targets", "[reduce_body]") {
  Random random(64);
  for (const DataType type : test::kEachType) {
    Check({.type = type,
           .reduction = {ReduceOp::kSum, 1.0 / 64},
           .source_count = kReduceSourcesMax,
           .count = 33,
           .target_count = kReduceTargetsMax,
           .blocks = 2,
           .threads = 3},
          random);
  }
}

TEST_CASE("Aligned arrays are reduced in words", "[reduce_body]") {
  const PlacedBytes a(4, 400, PlacedBytes::Edges::kAllocation);
  const PlacedBytes b(4, 400, PlacedBytes::Edges::kAllocation);
  const PlacedBytes c(8, 400, PlacedBytes::Edges::kAllocation);
  const PlacedBytes d(2, 400, PlacedBytes::Edges::kAllocation);
  const auto plan = [](const PlacedBytes& source, const PlacedBytes& target) {
    const DeviceSpan from = source.span();
    const DeviceSpan to = target.span();
    return test::Good(PlanReduce({.sources = {&from, 1}, .targets = {&to, 1}, .count = 100}));
  };
  CHECK(plan(a, b).head_bytes == 12);
  CHECK(plan(a, b).words == (400 - 12) / 16);
  CHECK(plan(a, c).words == 0);  // the words of one are no words of the other
  CHECK(plan(a, c).head_bytes == 400);
  CHECK(plan(d, d).words == 0);  // a word holds no whole elements
}

}  // namespace
}  // namespace lmdbio::kernels
