// Each call of the driver fails once at each place of a small job with kernels. The job ends with
// an error that names the call, and nothing stays allocated.

#include <map>
#include <optional>
#include <string>

#include "lmdbio/kernels/device_kernels.h"
#include "tests/kernels/kernels_on_device.h"
#include "tests/support/catch.h"

namespace lmdbio::kernels {
namespace {

using device::Device;
using device::DeviceMemory;
using device::DeviceSpan;
using device::DeviceStream;
using device::DriverTable;
using device::PinnedBytes;
using test::Control;

constexpr device::DriverCode kUnknownCode = 999;  // it ends no context

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

// Begins anew. `name` is the call that fails, or nothing.
Status RunJob(MutableBytes host, bool is_eager, const std::string& name, uint64_t nth) {
  Control().Reset(nth);
  if (!is_eager) Control().HideFunction("cuFuncLoad");
  if (!name.empty()) Control().FailCall(name.c_str(), nth, kUnknownCode);
  LMDBIO_TRY(const DriverTable driver, device::LoadDriver(test::kDriver));
  LMDBIO_TRY(const auto device, Device::Open(0, driver));
  LMDBIO_TRY_VOID(UseKernels(*device, host));
  return device->release_failure();
}

TEST_CASE("Each call for kernels fails once at each place", "[device_kernels_faults]") {
  const test::SharedBytes host(4096);
  const bool is_eager = GENERATE(true, false);
  REQUIRE(RunJob(host.bytes(), is_eager, "", 1));
  CHECK(Control().Objects().total() == 0);
  std::map<std::string, uint64_t> counts;
  for (const char* const name : {"cuModuleLoadData", "cuModuleGetFunction", "cuFuncLoad",
                                 "cuLaunchKernel", "cuModuleUnload"}) {
    counts[name] = Control().CallCount(name);
  }
  CHECK((counts.at("cuFuncLoad") > 0) == is_eager);
  for (const auto& [name, count] : counts) {
    for (uint64_t nth = 1; nth <= count; ++nth) {
      INFO(name << ", call " << nth);
      const Status status = RunJob(host.bytes(), is_eager, name, nth);
      REQUIRE(!status);
      CHECK_THAT(status.error().message(), ContainsSubstring(name));
      CHECK(Control().FaultsLeft() == 0);
      CHECK(Control().Objects().total() == (name == "cuModuleUnload" ? 1 : 0));
    }
  }
}

}  // namespace
}  // namespace lmdbio::kernels
