#include "lmdbio/device/device_mark.h"

#include <thread>
#include <vector>

#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::SharedBytes;

struct MarkedDevice {
  explicit MarkedDevice(uint64_t seed = 1, uint64_t host_bytes = 65536)
      : gpu(seed), device(gpu.Open()), host(host_bytes), pinned(Good(device->Pin(host.bytes()))) {}

  DeviceMark At(uint64_t place) const { return Good(DeviceMark::In(pinned, 64 * place)); }

  EmulatedGpu gpu;
  std::shared_ptr<Device> device;
  SharedBytes host;
  PinnedBytes pinned;
};

TEST_CASE("A mark needs 8 aligned bytes of pinned memory", "[device_mark]") {
  const MarkedDevice marked;
  CHECK(DeviceMark::In(marked.pinned, 0));
  CHECK(DeviceMark::In(marked.pinned, 65528));
  for (const uint64_t offset : {uint64_t{4}, uint64_t{65536}, uint64_t{65532}, ~uint64_t{7}}) {
    CHECK(DeviceMark::In(marked.pinned, offset).error().code() == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("Streams meet at marks under every seed", "[device_mark]") {
  for (uint64_t seed = 1; seed <= test::SeedCount(100); ++seed) {
    INFO("seed " << seed);
    MarkedDevice marked(seed);
    Device& device = *marked.device;
    std::vector<DeviceMemory> parts;
    std::vector<DeviceStream> streams;
    std::vector<DeviceMark> marks;
    for (uint64_t i = 0; i < 4; ++i) {
      parts.push_back(Good(device.Allocate(64)));
      streams.push_back(Good(device.MakeStream()));
      marks.push_back(marked.At(i));
    }
    const DeviceMemory all = Good(device.Allocate(256));
    // Each stream writes its part; the first one gathers all parts when all marks are there.
    for (uint64_t i = 0; i < 4; ++i) {
      REQUIRE(streams[i].Fill(parts[i].begin(), static_cast<std::byte>('a' + i), 64));
      REQUIRE(streams[i].Raise(marks[i], 256));
    }
    REQUIRE(streams[0].AwaitAll(test::WaitsFor(marks, 256)));
    for (uint64_t i = 0; i < 4; ++i) {
      REQUIRE(streams[0].Copy(all.begin() + 64 * i, parts[i].begin(), 64));
    }
    REQUIRE(streams[0].Synchronize());
    CHECK(marked.gpu.Peek(all.begin(), 256) == std::string(64, 'a') + std::string(64, 'b') +
                                                   std::string(64, 'c') + std::string(64, 'd'));
    for (const DeviceMark& mark : marks) CHECK(mark.value() == 256);
    CHECK(marked.gpu->CallCount("cuStreamBatchMemOp") == 1);
  }
}

TEST_CASE("A wait for marks ends not before its value, nor for one of two", "[device_mark]") {
  MarkedDevice marked;
  DeviceStream stream = Good(marked.device->MakeStream());
  const std::vector<DeviceMark> marks = {marked.At(0), marked.At(1)};
  REQUIRE(stream.AwaitAll(test::WaitsFor(marks, 10)));
  marks[0].Raise(10);
  marks[1].Raise(9);
  for (int looks = 0; looks < 20; ++looks) CHECK(!Good(stream.IsDone()));
  marks[1].Raise(11);
  CHECK(stream.Synchronize());
}

TEST_CASE("Each mark of a wait has a value of its own", "[device_mark]") {
  MarkedDevice marked;
  DeviceStream stream = Good(marked.device->MakeStream());
  const std::vector<MarkWait> waits = {{marked.At(0), 3}, {marked.At(1), 5}};
  REQUIRE(stream.AwaitAll(waits));
  CHECK(marked.gpu->CallCount("cuStreamBatchMemOp") == 1);
  waits[0].mark.Raise(3);
  waits[1].mark.Raise(4);
  for (int looks = 0; looks < 20; ++looks) CHECK(!Good(stream.IsDone()));
  waits[1].mark.Raise(5);
  CHECK(stream.Synchronize());
}

TEST_CASE("Poison ends the waits of streams and hosts, also twice", "[device_mark]") {
  MarkedDevice marked;
  DeviceStream stream = Good(marked.device->MakeStream());
  const std::vector<DeviceMark> marks = {marked.At(0), marked.At(1)};
  marks[0].Raise(7);
  REQUIRE(stream.AwaitAll(test::WaitsFor(marks, kMarkPoison - 1)));
  CHECK(!marks[0].HasReached(8));
  CHECK(!marks[0].is_poisoned());
  CHECK(!Good(stream.IsDone()));
  for (const DeviceMark& mark : marks) {
    mark.Poison();
    mark.Poison();
  }
  CHECK(marks[0].value() == kMarkPoison + 7);
  CHECK(marks[0].is_poisoned());
  CHECK(marks[0].HasReached(kMarkPoison - 1));
  CHECK(stream.Synchronize());
  marks[0].Raise(9);  // by a host that has not heard of it
  CHECK(marks[0].is_poisoned());
  CHECK(stream.AwaitAll(test::WaitsFor(marks, 1000)));
  CHECK(stream.Synchronize());
}

TEST_CASE("A host that poisons a mark releases a thread in Synchronize", "[device_mark]") {
  MarkedDevice marked;
  DeviceStream stream = Good(marked.device->MakeStream());
  const std::vector<DeviceMark> marks = {marked.At(0)};
  REQUIRE(stream.AwaitAll(test::WaitsFor(marks, 1)));
  std::thread survivor([&] { marks[0].Poison(); });
  CHECK(stream.Synchronize());
  survivor.join();
}

TEST_CASE("Many marks take one call for each 255", "[device_mark]") {
  MarkedDevice marked;
  DeviceStream stream = Good(marked.device->MakeStream());
  std::vector<DeviceMark> marks;
  for (uint64_t i = 0; i < 300; ++i) marks.push_back(marked.At(i));
  REQUIRE(stream.AwaitAll({}));
  CHECK(marked.gpu->CallCount("cuStreamBatchMemOp") == 0);
  REQUIRE(stream.AwaitAll(test::WaitsFor(marks, 5)));
  CHECK(marked.gpu->CallCount("cuStreamBatchMemOp") == 2);
  for (size_t i = 0; i + 1 < marks.size(); ++i) marks[i].Raise(5);
  CHECK(!Good(stream.IsDone()));
  for (int looks = 0; looks < 400; ++looks) (void)stream.IsDone();
  CHECK(!Good(stream.IsDone()));
  marks.back().Raise(5);
  CHECK(stream.Synchronize());
}

TEST_CASE("Values of marks stay below the poison", "[device_mark]") {
  MarkedDevice marked;
  DeviceStream stream = Good(marked.device->MakeStream());
  const std::vector<DeviceMark> marks = {marked.At(0)};
  CHECK(stream.Raise(marks[0], kMarkPoison).error().code() == ErrorCode::kInvalidArgument);
  const std::vector<MarkWait> waits = {{marks[0], 1}, {marks[0], kMarkPoison}};
  CHECK(stream.AwaitAll(waits).error().code() == ErrorCode::kInvalidArgument);
  CHECK(marked.gpu->CallCount("cuStreamBatchMemOp") == 0);
}

TEST_CASE("A driver without memory operations of streams says so", "[device_mark]") {
  MarkedDevice marked;
  DriverTable table = marked.gpu.table();
  table.StreamWriteValue64 = nullptr;
  table.StreamBatchMemOp = nullptr;
  const auto device = Good(Device::Open(0, table));
  DeviceStream stream = Good(device->MakeStream());
  const std::vector<DeviceMark> marks = {marked.At(0)};
  CHECK(stream.Raise(marks[0], 1).error().code() == ErrorCode::kUnsupported);
  CHECK(stream.AwaitAll(test::WaitsFor(marks, 1)).error().code() == ErrorCode::kUnsupported);
}

TEST_CASE("A mark in memory that is no longer pinned ends the context", "[device_mark]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  DeviceStream stream = Good(device->MakeStream());
  {
    const PinnedBytes pinned = Good(device->Pin(host.bytes()));
    const std::vector<DeviceMark> marks = {Good(DeviceMark::In(pinned, 0))};
    REQUIRE(stream.AwaitAll(test::WaitsFor(marks, 1)));
  }
  CHECK_THAT(stream.Synchronize().error().message(),
             ContainsSubstring("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

}  // namespace
}  // namespace lmdbio::device
