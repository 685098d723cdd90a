// Kernels by way of the driver, which is the stand-in. Oracles: ReduceAll, Scale and memcpy.

#include "lmdbio/kernels/device_kernels.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/kernels/kernel_list.h"
#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/sync/reduce/reduce.h"
#include "tests/kernels/kernels_on_device.h"
#include "tests/support/catch.h"
#include "tests/sync/reduce/number_oracle.h"

namespace lmdbio::kernels {
namespace {

using device::DeviceEvent;
using device::DeviceMemory;
using device::DeviceSpan;
using device::DeviceStream;
using device::PinnedBytes;
using sync::DataType;
using sync::ReduceOp;
using test::EmulatedGpu;
using test::EmulatedKernelImage;
using test::Good;
using test::KernelsOnDevice;
using test::Must;
using test::Random;
using test::SharedBytes;

constexpr uint64_t kKernelCount = 0
#define LMDBIO_COUNT(NAME, TABLE, BODY) +1
    LMDBIO_FOR_EACH_KERNEL(LMDBIO_COUNT);

const std::byte* PointerTo(const std::string& bytes) {
  return reinterpret_cast<const std::byte*>(bytes.data());
}

bool HasRefused(const Status& status, const std::string& text) {
  INFO((status ? std::string("no error") : status.error().message()));
  CHECK_THAT((status ? std::string() : status.error().message()), ContainsSubstring(text));
  return !status && status.error().code() == ErrorCode::kInvalidArgument;
}

TEST_CASE("All kernels are loaded before the first launch", "[device_kernels]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const auto kernels = Good(DeviceKernels::Load(*device, EmulatedKernelImage()));
  CHECK(gpu->CallCount("cuModuleLoadData") == 1);
  CHECK(gpu->CallCount("cuModuleGetFunction") == kKernelCount);
  CHECK(gpu->CallCount("cuFuncLoad") == kKernelCount);
  CHECK(gpu->CallCount("cuLaunchKernel") == 0);
}

TEST_CASE("Older drivers load a kernel by a launch without work", "[device_kernels]") {
  EmulatedGpu gpu;
  gpu->HideFunction("cuFuncLoad");
  const device::DriverTable driver = Good(device::LoadDriver(test::kDriver));
  const auto device = Good(device::Device::Open(0, driver));
  const auto kernels = Good(DeviceKernels::Load(*device, EmulatedKernelImage()));
  CHECK(gpu->CallCount("cuLaunchKernel") == kKernelCount);
  CHECK(gpu->LazyLoads() == kKernelCount);
  CHECK(gpu->QueuedCount() == 0);
  const DeviceMemory memory = Good(device->Allocate(64));
  DeviceStream stream = Good(device->MakeStream());
  const DeviceSpan span = memory.span();
  REQUIRE(kernels->Launch(stream,
                          ReduceWork{.sources = {&span, 1}, .targets = {&span, 1}, .count = 16}));
  CHECK(gpu->LazyLoads() == kKernelCount);
}

TEST_CASE("A library without kernels says how to build them", "[device_kernels]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const auto kernels = DeviceKernels::Load(*device, KernelImage{});
  REQUIRE(!kernels);
  CHECK(kernels.error().code() == ErrorCode::kUnsupported);
  CHECK_THAT(kernels.error().message(), ContainsSubstring("built without kernels"));
  CHECK_THAT(kernels.error().message(), ContainsSubstring("LMDBIO_CUDA"));
  CHECK(gpu->CallCount("cuModuleLoadData") == 0);
}

TEST_CASE("A driver that cannot take the kernels is named with what they need",
          "[device_kernels]") {
  for (const auto code :
       {device::driver_code::kNoBinaryForGpu, device::driver_code::kUnsupportedPtxVersion,
        device::driver_code::kInvalidPtx, device::driver_code::kNoPtxCompiler}) {
    const EmulatedGpu gpu;
    gpu->SetVersion(12040);
    gpu->SetAttribute(device::DeviceAttribute::kComputeCapabilityMajor, 7);
    gpu->SetAttribute(device::DeviceAttribute::kComputeCapabilityMinor, 5);
    const auto device = gpu.Open();
    gpu->FailCall("cuModuleLoadData", 1, code);
    const auto kernels = DeviceKernels::Load(*device, EmulatedKernelImage());
    REQUIRE(!kernels);
    CHECK(kernels.error().code() == ErrorCode::kUnsupported);
    for (const char* const part : {"cuModuleLoadData", "made by nvcc 0.0 for sm_00",
                                   "compute capability 7.5", "CUDA 12.4", "Emulated GPU 0"}) {
      CHECK_THAT(kernels.error().message(), ContainsSubstring(part));
    }
  }
}

TEST_CASE("Bytes that are no kernels are refused", "[device_kernels]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const std::string text = "no machine code";
  KernelImage image = EmulatedKernelImage();
  image.bytes = {PointerTo(text), text.size()};
  const auto kernels = DeviceKernels::Load(*device, image);
  REQUIRE(!kernels);
  CHECK(kernels.error().code() == ErrorCode::kUnsupported);
}

TEST_CASE("The kernels of this build load, or the build has none", "[device_kernels]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const auto kernels = DeviceKernels::Load(*device);
  CHECK(kernels.has_value() == !BuiltInKernels().bytes.empty());
  if (kernels) CHECK_THAT(std::string(BuiltInKernels().compiler), ContainsSubstring("nvcc 1"));
}

TEST_CASE("Reductions on a device give the bits of ReduceAll", "[device_kernels]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(30); ++seed) {
    INFO("seed " << seed);
    KernelsOnDevice on(seed);
    Random random(seed);
    const DataType type = test::kEachType[random.Below(test::kEachType.size())];
    const ReduceOp op = test::kEachOp[random.Below(test::kEachOp.size())];
    const sync::Reduction reduction(op, random.Below(2) == 0 ? 1 : 0.3);
    const size_t count = random.Below(3000);
    const size_t size_bytes = count * sync::ElementBytes(type);
    std::vector<DeviceMemory> memory;
    std::vector<DeviceSpan> sources;
    std::vector<std::string> numbers;
    std::vector<const std::byte*> pointers;
    for (uint64_t i = random.Between(1, 5); i > 0; --i) {
      numbers.push_back(test::NumbersOf(random, type, count));
      memory.push_back(on.Make(numbers.back()));
      sources.push_back(memory.back().span());
    }
    for (const std::string& text : numbers) pointers.push_back(PointerTo(text));
    const DeviceMemory other = Good(on.device->Allocate(size_bytes + 1));
    const std::vector<DeviceSpan> targets = {sources[0], other.span()};
    REQUIRE(on.kernels->Launch(on.stream, ReduceWork{.sources = sources,
                                                     .targets = targets,
                                                     .count = count,
                                                     .type = type,
                                                     .reduction = reduction}));
    REQUIRE(on.stream.Synchronize());
    std::vector<std::byte> expected(size_bytes);
    sync::ReduceAll(type, reduction, expected.data(), pointers, count);
    for (const DeviceSpan& target : targets) {
      const std::string found = on.gpu.Peek(target.begin, size_bytes);
      CHECK(test::FirstDifference(type, PointerTo(found), expected.data(), count) == count);
    }
  }
}

TEST_CASE("A reduction reads pinned memory when it runs", "[device_kernels]") {
  KernelsOnDevice on(1);
  const SharedBytes host(4096);
  const PinnedBytes pinned = Good(on.device->Pin(host.bytes()));
  const DeviceMemory memory = on.Make(std::string(4096, '\0'));
  const std::vector<DeviceSpan> sources = {memory.span(), pinned.span()};
  const DeviceSpan target = memory.span();
  REQUIRE(on.kernels->Launch(
      on.stream,
      ReduceWork{
          .sources = sources, .targets = {&target, 1}, .count = 1024, .type = DataType::kInt32}));
  CHECK(on.gpu->QueuedCount() == 1);
  test::Write(pinned, std::string(4096, '\1'));
  REQUIRE(on.stream.Synchronize());
  CHECK(on.gpu.Peek(memory.begin(), 4096) == std::string(4096, '\1'));
}

// Two streams copy in, a third one reduces behind their events, and the first one copies out.
bool IsSumRight(uint64_t seed, bool waits) {
  KernelsOnDevice on(seed);
  const SharedBytes host(12288);
  const PinnedBytes pinned = Good(on.device->Pin(host.bytes()));
  test::Write(pinned, std::string(4096, '\1') + std::string(4096, '\2'));
  std::vector<DeviceStream> copies;
  std::vector<DeviceMemory> memory;
  std::vector<DeviceSpan> spans;
  for (uint64_t i = 0; i < 2; ++i) {
    copies.push_back(Good(on.device->MakeStream()));
    memory.push_back(Good(on.device->Allocate(4096)));
    spans.push_back(memory.back().span());
    Must(copies[i].CopyIn(memory[i].begin(), pinned, i * 4096, 4096));
    DeviceEvent& event = on.MakeEvent();
    Must(copies[i].Record(event));
    if (waits) Must(on.stream.Await(event));
  }
  Must(on.kernels->Launch(on.stream, ReduceWork{.sources = spans,
                                                .targets = std::span(spans).first(1),
                                                .count = 1024,
                                                .type = DataType::kInt32}));
  Must(on.stream.CopyOut(pinned, 8192, memory[0].begin(), 4096));
  Must(on.stream.Synchronize());
  for (DeviceStream& stream : copies) Must(stream.Synchronize());
  return test::Read(pinned, 12288).substr(8192) == std::string(4096, '\3');
}

TEST_CASE("Kernels run in the order of their streams under every seed", "[device_kernels]") {
  uint64_t wrong = 0;
  for (uint64_t seed = 1; seed <= test::SeedCount(50); ++seed) {
    INFO("seed " << seed);
    CHECK(IsSumRight(seed, true));
    wrong += IsSumRight(seed, false) ? 0 : 1;
  }
  CHECK(wrong > 0);
}

TEST_CASE("Threads launch on streams of their own at the same time", "[device_kernels]") {
  constexpr size_t kThreads = 4;
  KernelsOnDevice on(1);
  const std::string ones(4000, '\1');
  std::vector<DeviceMemory> memory;
  for (size_t i = 0; i < kThreads; ++i) memory.push_back(on.Make(ones));
  std::vector<Status> results(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      results[i] = [&]() -> Status {
        LMDBIO_TRY(DeviceStream stream, on.device->MakeStream());
        const DeviceSpan span = memory[i].span();
        const std::vector<DeviceSpan> sources = {span, span};
        for (int round = 0; round < 5; ++round) {  // twice as much in each
          LMDBIO_TRY_VOID(on.kernels->Launch(stream, ReduceWork{.sources = sources,
                                                                .targets = {&span, 1},
                                                                .count = 1000,
                                                                .type = DataType::kInt32}));
        }
        return stream.Synchronize();
      }();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i) {
    CHECK(results[i]);
    CHECK(on.gpu.Peek(memory[i].begin(), 4000) == std::string(4000, '\40'));  // 2^5
  }
}

TEST_CASE("A thousand tensors are packed by one launch", "[device_kernels]") {
  for (const size_t tensor_count : {0, 1, 1000, 1024, 1025, 2000}) {
    CAPTURE(tensor_count);
    KernelsOnDevice on(tensor_count + 1);
    Random random(tensor_count);
    const std::string numbers = test::NumbersOf(random, DataType::kFloat32, 40'000);
    const DeviceMemory memory = on.Make(numbers);
    const DeviceMemory buffer = on.Make(std::string(300'000, '\7'));
    std::vector<DeviceSpan> tensors;
    std::vector<uint64_t> offsets;
    std::string expected(300'000, '\7');
    for (size_t i = 0; i < tensor_count; ++i) {
      const size_t count = random.Between(1, 30);
      const size_t from = 4 * random.Below(40'000 - count);
      tensors.push_back({memory.begin() + from, 4 * count});
      offsets.push_back(i * 128);
      auto* const place = reinterpret_cast<std::byte*>(expected.data()) + i * 128;
      sync::Scale(DataType::kFloat32, 0.5, place, PointerTo(numbers) + from, count);
    }
    REQUIRE(on.kernels->Launch(on.stream, PackWork{.direction = PackDirection::kPack,
                                                   .tensors = tensors,
                                                   .offsets = offsets,
                                                   .buffer = buffer.span(),
                                                   .type = DataType::kFloat32,
                                                   .scale = 0.5}));
    CHECK(on.gpu->CallCount("cuLaunchKernel") == (tensor_count + 1023) / 1024);
    REQUIRE(on.stream.Synchronize());
    const std::string found = on.gpu.Peek(buffer.begin(), 300'000);
    CHECK(test::FirstDifference(DataType::kFloat32, PointerTo(found), PointerTo(expected),
                                75'000) == 75'000);
  }
}

TEST_CASE("Tensors that lie in the buffer are only scaled", "[device_kernels]") {
  KernelsOnDevice on(1);
  const DeviceMemory buffer = on.Make(std::string(256, '\1'));
  const std::vector<DeviceSpan> tensors = {{buffer.begin() + 16, 64}};
  const std::vector<uint64_t> offsets = {16};
  PackWork work = {.tensors = tensors,
                   .offsets = offsets,
                   .buffer = buffer.span(),
                   .type = DataType::kInt32,
                   .scale = 1};
  REQUIRE(on.kernels->Launch(on.stream, work));
  CHECK(on.gpu->CallCount("cuLaunchKernel") == 0);
  work.scale = 2;
  REQUIRE(on.kernels->Launch(on.stream, work));
  REQUIRE(on.stream.Synchronize());
  CHECK(on.gpu.Peek(buffer.begin(), 256) ==
        std::string(16, '\1') + std::string(64, '\2') + std::string(176, '\1'));
}

// Values of any size and alignment in pinned memory, and rows or packed values. Oracle: memcpy.
void CheckGather(uint64_t seed) {
  KernelsOnDevice on(seed);
  Random random(seed);
  const size_t window_bytes = 200'000;
  const SharedBytes host(window_bytes + 100'000);
  const PinnedBytes pinned = Good(on.device->Pin(host.bytes()));
  const std::string window = random.BytesOf(window_bytes);
  test::Write(pinned, window);
  const bool has_rows = random.Below(2) == 0;
  const uint64_t value_max = random.Below(4) == 0 ? 40'000 : 3000;
  std::vector<GatherValue> values;
  uint64_t row_bytes = 0;
  for (uint64_t i = random.Below(20); i > 0; --i) {
    const uint64_t size_bytes = random.Below(6) == 0 ? 0 : random.Below(value_max);
    values.push_back({random.Below(window_bytes - size_bytes), size_bytes});
    row_bytes = std::max(row_bytes, size_bytes);
  }
  row_bytes += random.Below(2) == 0 ? 0 : random.Below(20'000);
  std::string expected;
  for (const GatherValue& value : values) {
    expected += window.substr(value.offset, value.size_bytes);
    if (has_rows) expected.resize(expected.size() + row_bytes - value.size_bytes);
  }
  const size_t skew = random.Below(16);
  const DeviceMemory rows = on.Make(std::string(expected.size() + skew + 100, '\7'));
  REQUIRE(on.kernels->Launch(
      on.stream, GatherWork{.window = pinned,
                            .values = values,
                            .rows = {rows.begin() + skew, expected.size()},
                            .row_bytes = has_rows ? std::optional(row_bytes) : std::nullopt,
                            .list = pinned,
                            .list_offset = window_bytes}));
  CHECK(on.gpu->CallCount("cuLaunchKernel") == (expected.empty() ? 0 : 1));
  REQUIRE(on.stream.Synchronize());
  CHECK(on.gpu.Peek(rows.begin(), expected.size() + skew + 100) ==
        std::string(skew, '\7') + expected + std::string(100, '\7'));
}

TEST_CASE("Values are gathered into rows, or packed", "[device_kernels]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(60); ++seed) {
    INFO("seed " << seed);
    CheckGather(seed);
  }
}

TEST_CASE("Work of a wrong size is refused before a launch", "[device_kernels]") {
  KernelsOnDevice on(1);
  const DeviceMemory memory = Good(on.device->Allocate(256));
  const DeviceSpan span = memory.span();
  const uint64_t zero = 0;
  CHECK(HasRefused(
      on.kernels->Launch(on.stream,
                         ReduceWork{.sources = {&span, 1}, .targets = {&span, 1}, .count = 65}),
      "source 0 of a reduction has 256 bytes; 260 are needed"));
  CHECK(HasRefused(on.kernels->Launch(on.stream, PackWork{.tensors = {&span, 1},
                                                          .offsets = {&zero, 1},
                                                          .buffer = {memory.begin() + 1024, 255}}),
                   "tensor 0 of 256 bytes at offset 0 of a buffer of 255 bytes does not fit"));
  CHECK(on.gpu->CallCount("cuLaunchKernel") == 0);
}

TEST_CASE("Memory that was freed before the kernel ran ends the context", "[device_kernels]") {
  KernelsOnDevice on(1);
  {
    const DeviceMemory memory = on.Make(std::string(256, '\0'));
    const DeviceSpan span = memory.span();
    REQUIRE(on.kernels->Launch(
        on.stream, ReduceWork{.sources = {&span, 1}, .targets = {&span, 1}, .count = 64}));
  }
  const Status status = on.stream.Synchronize();
  REQUIRE(!status);
  CHECK(status.error().code() == ErrorCode::kInternal);
  CHECK_THAT(status.error().message(), ContainsSubstring("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST_CASE("Work on nothing is no launch", "[device_kernels]") {
  KernelsOnDevice on(1);
  const DeviceSpan nothing;
  CHECK(on.kernels->Launch(
      on.stream, ReduceWork{.sources = {&nothing, 1}, .targets = {&nothing, 1}, .count = 0}));
  CHECK(on.kernels->Launch(on.stream, PackWork{}));
  CHECK(on.gpu->CallCount("cuLaunchKernel") == 0);
}

TEST_CASE("A launch takes no more blocks than it is given", "[device_kernels]") {
  CHECK(ShapeOf(1000, 132, 0).blocks == 528);
  CHECK(ShapeOf(1000, 132, 16).blocks == 16);
  CHECK(ShapeOf(3, 132, 16).blocks == 3);
  CHECK(ShapeOf(0, 0, 0).blocks == 1);
  CHECK(ShapeOf(10000, 132, 0, 8).blocks == 8 * 528);
  CHECK(ShapeOf(1000, 132, 0, 8).blocks == 1000);
  CHECK(ShapeOf(10000, 132, 16, 8).blocks == 16);
  CHECK(ShapeOf(1000, 132, 0).threads == kBlockThreads);
  CHECK(ShapeOf(10000, 132, 0, 1, 128).blocks == 4 * 528);
  CHECK(ShapeOf(10000, 132, 0, 1, 128).threads == 128);
}

}  // namespace
}  // namespace lmdbio::kernels
