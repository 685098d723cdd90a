// The kernel that copies many tensors, run by the host. Oracle: memcpy; with scales, Scale.

#include "lmdbio/kernels/pack_body.h"

#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/sync/reduce/reduce.h"
#include "tests/kernels/kernel_bodies.h"
#include "tests/support/catch.h"
#include "tests/support/good.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::kernels {
namespace {

using device::DeviceSpan;
using sync::DataType;
using test::PlacedBytes;
using test::Random;

// Tensors at any address, and a buffer with gaps between their places.
struct PackCase {
  PackCase(DataType its_type, const std::vector<size_t>& counts, Random& random) : type(its_type) {
    size_t end = 0;
    for (const size_t count : counts) {
      const std::string numbers = test::NumbersOf(random, type, count);
      tensors.emplace_back(random.Below(16), numbers.size(), PlacedBytes::Edges::kGuards);
      std::memcpy(tensors.back().data(), numbers.data(), numbers.size());
      end += random.Below(3) == 0 ? random.Below(40) : 0;
      offsets.push_back(end);
      end += numbers.size();
    }
    buffer.emplace_back(random.Below(16), end, PlacedBytes::Edges::kGuards);
    for (const PlacedBytes& tensor : tensors) spans.push_back(tensor.span());
  }

  PackWork Work(PackDirection direction, double scale) const {
    return {.direction = direction,
            .tensors = spans,
            .offsets = offsets,
            .buffer = buffer[0].span(),
            .type = type,
            .scale = scale};
  }

  DataType type;
  std::vector<PlacedBytes> tensors;
  std::vector<DeviceSpan> spans;
  std::vector<uint64_t> offsets;
  std::vector<PlacedBytes> buffer;  // one
};

void Run(const PackWork& work, uint32_t blocks, uint32_t threads) {
  const std::vector<PackPart> parts = test::Good(PlanPack(work));
  if (parts.empty()) return;
  PackTable table;
  table.scale = test::Good(PlanScale(work.type, work.scale));
  FillPackTable(parts, blocks, table);
  const std::string name =
      work.scale == 1 ? "lmdbio_pack_bytes" : fmt::format("lmdbio_pack_{}", NameOf(work.type));
  test::RunBody(name, table, blocks, threads);
}

// Packs and unpacks, each with a scale. Between them the buffer is compared.
void Check(DataType type, const std::vector<size_t>& counts, double scale, Random& random) {
  const PackCase given(type, counts, random);
  CAPTURE(NameOf(type), counts.size(), scale);
  const auto blocks = static_cast<uint32_t>(random.Between(1, 7));
  const auto threads = static_cast<uint32_t>(random.Between(1, 40));
  const std::byte* const buffer = given.buffer[0].data();
  const std::vector<std::byte> before(buffer, buffer + given.buffer[0].size_bytes());
  std::vector<std::byte> expected = before;
  for (size_t i = 0; i < counts.size(); ++i) {
    sync::Scale(type, scale, expected.data() + given.offsets[i], given.tensors[i].data(),
                counts[i]);
  }
  Run(given.Work(PackDirection::kPack, scale), blocks, threads);
  for (size_t i = 0, at = 0; i < counts.size(); ++i) {
    const size_t place = given.offsets[i];
    CHECK(std::memcmp(buffer + at, expected.data() + at, place - at) == 0);  // gaps
    CHECK(test::FirstDifference(type, buffer + place, expected.data() + place, counts[i]) ==
          counts[i]);
    at = place + given.tensors[i].size_bytes();
  }
  CHECK(given.buffer[0].AreEdgesWhole());

  Run(given.Work(PackDirection::kUnpack, scale), blocks, threads);
  for (size_t i = 0; i < counts.size(); ++i) {
    std::vector<std::byte> back(given.tensors[i].size_bytes());
    sync::Scale(type, scale, back.data(), buffer + given.offsets[i], counts[i]);
    CHECK(test::FirstDifference(type, given.tensors[i].data(), back.data(), counts[i]) ==
          counts[i]);
    CHECK(given.tensors[i].AreEdgesWhole());
  }
}

TEST_CASE("Tensors are packed and unpacked with a scale", "[pack_body]") {
  const DataType type = GENERATE(from_range(test::kEachType));
  Random random(static_cast<uint64_t>(type));
  for (int round = 0; round < 60; ++round) {
    std::vector<size_t> counts(random.Below(30));
    for (size_t& count : counts) count = random.Below(4) == 0 ? 0 : random.Below(200);
    Check(type, counts, round % 2 == 0 ? 1 : 1.0 / 3, random);
  }
}

TEST_CASE("A huge tensor and many small ones share a launch", "[pack_body]") {
  Random random(9);
  std::vector<size_t> counts(kPackPartsMax, 3);
  counts[500] = 300'000;
  Check(DataType::kFloat32, counts, 1, random);
  Check(DataType::kBFloat16, counts, 0.5, random);
  Check(DataType::kFloat32, {1'000'000}, 1, random);
  Check(DataType::kInt64, std::vector<size_t>(kPackPartsMax, 0), 2, random);
  Check(DataType::kInt64, {}, 2, random);
}

TEST_CASE("Blocks share the bytes of a launch equally", "[pack_body]") {
  PackTable table;
  const std::vector<PackPart> parts = {{1, 2, 1}, {3, 4, 1'000'001}, {5, 6, 1'000'017}};
  for (const uint32_t blocks : {1, 2, 3, 7, 100}) {
    FillPackTable(parts, blocks, table);
    CHECK(table.share_bytes * blocks >= 1'000'017);
    CHECK(table.share_bytes < 1'000'017 / blocks + 17);
    CHECK(table.share_bytes % 16 == 0);
  }
  CHECK(PartAt(table, 0) == 0);
  CHECK(PartAt(table, 1) == 1);
  CHECK(PartAt(table, 1'000'000) == 1);
  CHECK(PartAt(table, 1'000'001) == 2);
  CHECK(PartAt(table, 1'000'016) == 2);
}

}  // namespace
}  // namespace lmdbio::kernels
