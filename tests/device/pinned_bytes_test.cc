#include "lmdbio/device/pinned_bytes.h"

#include <sys/mman.h>

#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::SharedBytes;

TEST_CASE("Pin makes host memory usable by the device", "[pinned_bytes]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(8192);
  {
    const PinnedBytes pinned = Good(device->Pin(host.bytes()));
    CHECK(pinned.bytes().data() == host.bytes().data());
    CHECK(pinned.span().size_bytes == 8192);
    CHECK(pinned.span().begin.value != 0);
    CHECK(gpu->Objects().pinned == 1);
  }
  CHECK(gpu->Objects().pinned == 0);
  CHECK(device->Pin(host.bytes()));  // again
}

TEST_CASE("Pin refuses ranges that are no memory", "[pinned_bytes]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(8192);
  CHECK(device->Pin({}).error().code() == ErrorCode::kInvalidArgument);

  SECTION("an unmapped page in the range") {
    ::munmap(host.bytes().data() + 4096, 4096);
    const auto pinned = device->Pin(host.bytes());
    REQUIRE(!pinned);
    CHECK(pinned.error().code() == ErrorCode::kInvalidArgument);
    CHECK_THAT(pinned.error().message(),
               ContainsSubstring("cuMemHostRegister of 8192 bytes: CUDA_ERROR_INVALID_VALUE"));
    CHECK_THAT(pinned.error().message(), ContainsSubstring("mapped, writable memory"));
  }
  SECTION("device memory") {
    const DeviceMemory memory = Good(device->Allocate(64));
    const MutableBytes range(reinterpret_cast<std::byte*>(memory.begin().value), 64);
    CHECK(device->Pin(range).error().code() == ErrorCode::kInvalidArgument);
  }
}

TEST_CASE("Pin refuses memory that is pinned already", "[pinned_bytes]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(8192);
  const PinnedBytes pinned = Good(device->Pin(host.bytes()));
  const auto again = device->Pin(host.bytes().subspan(4096));
  REQUIRE(!again);
  CHECK(again.error().code() == ErrorCode::kInvalidArgument);
  CHECK_THAT(again.error().message(), ContainsSubstring("a part is pinned already"));
  CHECK(gpu->Objects().pinned == 1);
}

TEST_CASE("Pin names the limit of the host when the host refuses", "[pinned_bytes]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  gpu->FailCall("cuMemHostRegister", 1, driver_code::kOutOfMemory);
  const auto pinned = device->Pin(host.bytes());
  CHECK(pinned.error().code() == ErrorCode::kResourceExhausted);
  CHECK_THAT(pinned.error().message(), ContainsSubstring("ulimit -l"));
  gpu->FailCall("cuMemHostRegister", 1, driver_code::kNotSupported);
  CHECK(device->Pin(host.bytes()).error().code() == ErrorCode::kUnsupported);
}

TEST_CASE("Memory without an address for the device is not left pinned", "[pinned_bytes]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  gpu->FailCall("cuMemHostGetDevicePointer", 1, 999);
  CHECK_THAT(device->Pin(host.bytes()).error().message(),
             ContainsSubstring("cuMemHostGetDevicePointer"));
  CHECK(gpu->Objects().pinned == 0);
}

TEST_CASE("A copy of memory that is no longer pinned is an error", "[pinned_bytes]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const SharedBytes host(4096);
  const DeviceMemory memory = Good(device->Allocate(64));
  DeviceStream stream = Good(device->MakeStream());
  {
    const PinnedBytes pinned = Good(device->Pin(host.bytes()));
    REQUIRE(stream.CopyIn(memory.begin(), pinned, 0, 64));
  }
  CHECK_THAT(stream.Synchronize().error().message(),
             ContainsSubstring("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

}  // namespace
}  // namespace lmdbio::device
