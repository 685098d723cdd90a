// Checks of work before a launch. Each refusal names what is wrong.

#include "lmdbio/kernels/kernel_plans.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::kernels {
namespace {

using device::DeviceSpan;
using sync::DataType;
using sync::ReduceOp;
using test::Good;

template <typename T>
void CheckRefused(const Result<T>& result, const std::string& text) {
  INFO("expected: " << text);
  REQUIRE(!result);
  CHECK(result.error().code() == ErrorCode::kInvalidArgument);
  CHECK_THAT(result.error().message(), ContainsSubstring(text));
}

DeviceSpan At(uint64_t begin, uint64_t size_bytes) { return {{begin}, size_bytes}; }

// 25 elements of float32, apart from each other.
struct TwoSources {
  std::vector<DeviceSpan> sources = {At(0x1000, 100), At(0x2000, 100)};
  std::vector<DeviceSpan> targets = {At(0x3000, 100)};

  ReduceWork Work() const { return {.sources = sources, .targets = targets, .count = 25}; }
};

TEST_CASE("A reduction has 1 to 64 sources and targets", "[kernel_plans]") {
  TwoSources given;
  CHECK(PlanReduce(given.Work()));
  given.sources.clear();
  CheckRefused(PlanReduce(given.Work()), "a reduction with 0 sources; it can have 1 to 64");
  for (uint64_t i = 0; i < 65; ++i) given.sources.push_back(At(0x10000 + i * 0x1000, 100));
  CheckRefused(PlanReduce(given.Work()), "a reduction with 65 sources; it can have 1 to 64");
  given.sources.pop_back();
  CHECK(PlanReduce(given.Work()));
  given.targets.clear();
  CheckRefused(PlanReduce(given.Work()), "a reduction with 0 targets; it can have 1 to 64");
}

TEST_CASE("Arrays of a reduction hold all elements", "[kernel_plans]") {
  TwoSources given;
  given.sources[1].size_bytes = 99;
  CheckRefused(PlanReduce(given.Work()), "source 1 of a reduction has 99 bytes; 100 are needed");
  given = {};
  given.targets[0].size_bytes = 99;
  CheckRefused(PlanReduce(given.Work()), "target 0 of a reduction has 99 bytes; 100 are needed");
  given = {};
  given.sources[0].begin = {0};
  CheckRefused(PlanReduce(given.Work()), "source 0 of a reduction is at the address 0x0");
  given = {};
  given.sources[0].begin = {~uint64_t{50}};
  CheckRefused(PlanReduce(given.Work()), "source 0 of a reduction is at the address 0xffff");
  ReduceWork work = given.Work();
  work.count = std::numeric_limits<uint64_t>::max() / 2;
  CheckRefused(PlanReduce(work), "a reduction of 9223372036854775807 elements");
}

TEST_CASE("A target is a source or apart from all", "[kernel_plans]") {
  TwoSources given;
  given.targets = {given.sources[1], given.sources[0]};
  CHECK(PlanReduce(given.Work()));
  for (const uint64_t begin : {0x2001, 0x2063, 0x1F9D}) {
    given.targets = {At(begin, 100)};
    CheckRefused(PlanReduce(given.Work()), "target 0 of a reduction overlaps a part of source 1");
  }
  for (const uint64_t begin : {0x2064, 0x1F9C}) {
    given.targets = {At(begin, 100)};
    CHECK(PlanReduce(given.Work()));
  }
  given.targets = {At(0x3000, 100), At(0x4000, 100), At(0x3063, 100)};
  CheckRefused(PlanReduce(given.Work()), "targets 0 and 2 of a reduction overlap");
}

TEST_CASE("Types, reductions and scales are known ones", "[kernel_plans]") {
  const TwoSources given;
  ReduceWork work = given.Work();
  work.type = static_cast<DataType>(77);
  CheckRefused(PlanReduce(work), "data type number 77 is unknown");
  work.type = DataType::kInt32;
  work.reduction = {ReduceOp::kSum, std::numeric_limits<double>::infinity()};
  CheckRefused(PlanReduce(work), "int32 values cannot be scaled by inf");
  work.type = DataType::kFloat32;
  CHECK(PlanReduce(work));
  work.reduction = static_cast<ReduceOp>(9);
  CheckRefused(PlanReduce(work), "reduction number 9 is unknown");
  CheckRefused(PlanPack({.type = static_cast<DataType>(0)}), "data type number 0 is unknown");
}

TEST_CASE("Places of tensors lie in the buffer, one behind the other", "[kernel_plans]") {
  std::vector<DeviceSpan> tensors = {At(0x1000, 12), At(0x2000, 0), At(0x3000, 8)};
  std::vector<uint64_t> offsets = {0, 12, 12};
  PackWork work = {.tensors = tensors, .offsets = offsets, .buffer = At(0x9000, 20)};
  const std::vector<PackPart> parts = Good(PlanPack(work));
  REQUIRE(parts.size() == 2);  // an empty tensor makes none
  CHECK(parts[1].from == 0x3000);
  CHECK(parts[1].to == 0x900C);
  CHECK(parts[1].end == 20);

  work.direction = PackDirection::kUnpack;
  CHECK(Good(PlanPack(work))[1].from == 0x900C);
  work.buffer.size_bytes = 19;
  CheckRefused(PlanPack(work), "tensor 2 of 8 bytes at offset 12 of a buffer of 19 bytes does not");
  work.buffer = At(0, 20);
  CheckRefused(PlanPack(work), "a buffer of 20 bytes at the address 0x0");
  work.buffer = At(0x9000, 20);
  offsets[2] = 11;
  CheckRefused(PlanPack(work), "tensor 2 of 8 bytes at offset 11 of a buffer of 20 bytes begins");
  offsets[2] = 12;
  tensors[2].begin = {0};
  CheckRefused(PlanPack(work), "has no valid address");
  tensors[2].begin = {0x9008};
  CheckRefused(PlanPack(work), "overlaps the buffer in another place");
  tensors[2].begin = {0x900C};
  CHECK(Good(PlanPack(work)).size() == 1);  // in place
  work.scale = 2;
  CHECK(Good(PlanPack(work)).size() == 2);
  work.type = DataType::kFloat64;
  CheckRefused(PlanPack(work), "tensor 0 of 12 bytes at offset 0 of a buffer of 20 bytes is no");
  work.offsets = work.offsets.first(2);
  CheckRefused(PlanPack(work), "3 tensors with 2 offsets");
}

TEST_CASE("Values, rows and the list of a gather fit into their memory", "[kernel_plans]") {
  const test::EmulatedGpu gpu;
  const auto device = gpu.Open();
  const test::SharedBytes host(65536);
  const device::PinnedBytes pinned = Good(device->Pin(host.bytes()));
  std::vector<GatherValue> values = {{0, 100}, {65436, 100}};
  const auto work = [&] {
    return GatherWork{.window = pinned,
                      .values = values,
                      .rows = At(0x1000, 256),
                      .row_bytes = 128,
                      .list = pinned,
                      .list_offset = 1024};
  };
  CHECK(GatherListBytes(values, 128) == 2 * sizeof(GatherPiece));
  CHECK(GatherListBytes(values, std::nullopt) == 2 * sizeof(GatherPiece));
  CHECK(GatherListBytes(values, 4097) == 4 * sizeof(GatherPiece));
  CHECK(Good(PlanGather(work())).piece_count == 2);

  values[1].offset = 65437;
  CheckRefused(PlanGather(work()), "value 1 of 100 bytes at offset 65437 of a window of 65536");
  values[1] = {0, 129};
  CheckRefused(PlanGather(work()), "value 1 of 129 bytes does not fit into a row of 128 bytes");
  values[1] = {0, 128};
  GatherWork wrong = work();
  wrong.rows = At(0x1000, 255);
  CheckRefused(PlanGather(wrong), "value 1 of 2 does not fit into rows of 255 bytes in all");
  GatherWork nowhere = work();
  nowhere.rows = At(0, 256);
  CheckRefused(PlanGather(nowhere), "rows at the address 0x0");
  GatherWork far = work();
  far.list_offset = 65536 - 40;
  CheckRefused(PlanGather(far), "a list of 48 bytes at offset 65496 of 65536 pinned bytes");
  GatherWork odd = work();
  odd.list_offset = 1025;
  CheckRefused(PlanGather(odd), "no multiple of 8");
  GatherWork same = work();
  same.rows = {pinned.span().begin + 4096, 256};
  CheckRefused(PlanGather(same), "the rows overlap the window or the list");
  values = {{0, 100}, {1071, 1}};  // the last byte of the list
  CheckRefused(PlanGather(work()), "the list overlaps value 1");
  values = {{1024, 0}, {1072, 1}};
  CHECK(PlanGather(work()));
}

TEST_CASE("Rows of a gather and its list are apart", "[kernel_plans]") {
  const test::EmulatedGpu gpu;
  const auto device = gpu.Open();
  const test::SharedBytes host(4096);
  const test::SharedBytes other(4096);
  const device::PinnedBytes window = Good(device->Pin(host.bytes()));
  const device::PinnedBytes list = Good(device->Pin(other.bytes()));
  const GatherValue value = {0, 100};
  const auto work = [&](uint64_t rows_offset, uint64_t rows_bytes) {
    return GatherWork{.window = window,
                      .values = {&value, 1},
                      .rows = {list.span().begin + rows_offset, rows_bytes},
                      .row_bytes = std::nullopt,
                      .list = list,
                      .list_offset = 1024};
  };
  CheckRefused(PlanGather(work(924, 101)), "the rows overlap the window or the list");
  CHECK(PlanGather(work(924, 100)));
  CheckRefused(PlanGather(work(1047, 100)), "the rows overlap the window or the list");
  CHECK(PlanGather(work(1048, 100)));
}

}  // namespace
}  // namespace lmdbio::kernels
