#include "lmdbio/device/device_error.h"

#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;

TEST_CASE("DriverError has the driver's name and text of a code", "[device_error]") {
  const EmulatedGpu gpu;
  const Error error = DriverError(gpu.table(), driver_code::kIllegalAddress, "cuMemFree");
  CHECK(error.message() == "cuMemFree: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access)");
  CHECK(error.code() == ErrorCode::kInternal);
}

TEST_CASE("DriverError has the code that tells the caller what to do", "[device_error]") {
  const EmulatedGpu gpu;
  const auto code_of = [&](DriverCode code) { return DriverError(gpu.table(), code, "x").code(); };
  CHECK(code_of(driver_code::kOutOfMemory) == ErrorCode::kResourceExhausted);
  CHECK(code_of(driver_code::kNotSupported) == ErrorCode::kUnsupported);
  CHECK(code_of(driver_code::kPeerAccessUnsupported) == ErrorCode::kUnsupported);
  CHECK(code_of(driver_code::kTooManyPeers) == ErrorCode::kUnsupported);
  CHECK(code_of(driver_code::kNotPermitted) == ErrorCode::kPermission);
  CHECK(code_of(driver_code::kInvalidHandle) == ErrorCode::kInternal);
}

TEST_CASE("A code without a name is a number", "[device_error]") {
  const EmulatedGpu gpu;
  CHECK(DriverReason(gpu.table(), 4711) == "code 4711");
  gpu->FailCall("cuGetErrorString", 1, 999);
  CHECK(DriverReason(gpu.table(), driver_code::kInvalidValue) == "CUDA_ERROR_INVALID_VALUE");
  gpu->FailCall("cuGetErrorName", 1, 999);
  CHECK(DriverReason(gpu.table(), driver_code::kInvalidValue) == "code 1");
}

TEST_CASE("Only failures of the device itself end a context", "[device_error]") {
  for (const DriverCode code : {4, 214, 220, 700, 709, 710, 714, 715, 716, 717, 718, 719}) {
    CHECK(EndsContext(code));
  }
  for (const DriverCode code :
       {0, 1, 2, 3, 100, 201, 217, 400, 600, 704, 711, 712, 800, 801, 999}) {
    CHECK(!EndsContext(code));
  }
}

}  // namespace
}  // namespace lmdbio::device
