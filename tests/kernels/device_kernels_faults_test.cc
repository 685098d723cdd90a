// Each call of the driver fails once at each place of a small job with kernels. The job ends with
// an error that names the call, and nothing stays allocated.

#include <optional>
#include <string>

#include "lmdbio/kernels/device_kernels.h"
#include "tests/device/failing_calls.h"
#include "tests/kernels/kernels_on_device.h"
#include "tests/support/catch.h"

namespace lmdbio::kernels {
namespace {

using device::Device;
using device::DeviceMemory;
using device::DeviceSpan;
using device::DeviceStream;
using device::PinnedBytes;

Status UseKernels(Device& device, MutableBytes host) {
  LMDBIO_TRY(const auto kernels, DeviceKernels::Load(device, test::EmulatedKernelImage()));
  LMDBIO_TRY(const DeviceMemory memory, device.Allocate(1024));
  LMDBIO_TRY(const PinnedBytes pinned, device.Pin(host));
  LMDBIO_TRY(DeviceStream stream, device.MakeStream());
  const DeviceSpan first = {memory.begin(), 256};
  const DeviceSpan second = {memory.begin() + 512, 256};
  const uint64_t offset = 0;
  const GatherValue value = {8, 100};
  LMDBIO_TRY_VOID(kernels->Launch(
      stream, ReduceWork{.sources = {&first, 1}, .targets = {&second, 1}, .count = 64}));
  LMDBIO_TRY_VOID(kernels->Launch(
      stream, PackWork{.tensors = {&first, 1}, .offsets = {&offset, 1}, .buffer = second}));
  LMDBIO_TRY_VOID(kernels->Launch(stream, GatherWork{.window = pinned,
                                                     .values = {&value, 1},
                                                     .rows = first,
                                                     .row_bytes = std::nullopt,
                                                     .list = pinned,
                                                     .list_offset = 1024}));
  return stream.Synchronize();
}

// Drivers load kernels by a call of their own, or by launches without work.
test::DriverJob Job(bool is_eager) {
  test::DriverJob job = {.use = UseKernels};
  if (!is_eager) job.hidden = {"cuFuncLoad"};
  return job;
}

TEST_CASE("Each call for kernels fails once at each place", "[device_kernels_faults]") {
  const bool is_eager = GENERATE(true, false);
  const auto counts = test::FailEachCall(Job(is_eager), test::kUnknownCode,
                                         [](const std::string& name, const Error& error) {
                                           CHECK_THAT(error.message(), ContainsSubstring(name));
                                         });
  for (const char* const name :
       {"cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuModuleUnload"}) {
    CHECK(counts.at(name) > 0);
  }
  CHECK((counts.at("cuFuncLoad") > 0) == is_eager);
}

TEST_CASE("A context may end at each call for kernels", "[device_kernels_faults]") {
  test::FailEachCall(
      Job(GENERATE(true, false)), device::driver_code::kIllegalAddress,
      [](const std::string& name, const Error& error) {
        CHECK_THAT(error.message(), ContainsSubstring(name));
        CHECK((error.code() == ErrorCode::kInternal || name == "cuDriverGetVersion"));
      });
}

}  // namespace
}  // namespace lmdbio::kernels
