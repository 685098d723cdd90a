// Each call of the driver fails once at each place of a small job. The job ends with an error that
// names the call, and nothing stays allocated.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "lmdbio/device/device.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::device {
namespace {

using test::Control;
using test::EmulatedObjects;
using test::kDriver;
using test::SharedBytes;

constexpr DriverCode kUnknownCode = 999;  // it ends no context

// Uses every function of the driver but those that report errors and open other processes' objects.
Status UseAll(Device& device, MutableBytes host) {
  LMDBIO_TRY(const DeviceMemory memory, device.Allocate(1024));
  LMDBIO_TRY(const PinnedBytes pinned, device.Pin(host));
  LMDBIO_TRY(DeviceStream first, device.MakeStream());
  LMDBIO_TRY(DeviceStream second, device.MakeStream());
  LMDBIO_TRY(DeviceEvent begin, device.MakeEvent(DeviceEventKind::kTimed));
  LMDBIO_TRY(DeviceEvent end, device.MakeEvent(DeviceEventKind::kTimed));
  LMDBIO_TRY(const DeviceEvent shared, device.MakeEvent(DeviceEventKind::kShared));
  LMDBIO_TRY_VOID(device.Share(shared));
  LMDBIO_TRY(const MemoryTicket ticket, device.Share(memory));
  LMDBIO_TRY(const DeviceMemory again, device.Import(ticket));
  LMDBIO_TRY_VOID(device.Describe(&device));
  LMDBIO_TRY(const DeviceMark mark, DeviceMark::In(pinned, 0));

  LMDBIO_TRY_VOID(first.Record(begin));
  LMDBIO_TRY_VOID(first.CopyIn(memory.begin(), pinned, 64, 512));
  LMDBIO_TRY_VOID(first.Copy(again.begin() + 512, memory.begin(), 512));
  LMDBIO_TRY_VOID(first.Record(end));
  LMDBIO_TRY_VOID(first.Raise(mark, 1));
  LMDBIO_TRY_VOID(second.Await(end));
  LMDBIO_TRY_VOID(second.AwaitAll({&mark, 1}, 1));
  LMDBIO_TRY_VOID(second.CopyOut(pinned, 1024, memory.begin(), 1024));
  LMDBIO_TRY_VOID(second.IsDone());
  LMDBIO_TRY_VOID(end.IsDone());
  LMDBIO_TRY_VOID(second.Synchronize());
  LMDBIO_TRY_VOID(end.MillisecondsSince(begin));
  return {};
}

std::vector<std::string> Functions() {
  std::vector<std::string> names;
  const DriverTable table;
  ForEachFunction(table, [&](const char* name, FunctionNeed, auto) { names.emplace_back(name); });
  return names;
}

// The calls of the job before it destroys the device, whose destructor can tell nobody.
std::map<std::string, uint64_t> told_calls;

Status RunJob(MutableBytes host) {
  LMDBIO_TRY(const DriverTable driver, LoadDriver(kDriver));
  LMDBIO_TRY(const auto device, Device::Open(0, driver));
  LMDBIO_TRY_VOID(UseAll(*device, host));
  for (const std::string& name : Functions()) told_calls[name] = Control().CallCount(name.c_str());
  return device->release_failure();
}

// Calls that give an object back: if one fails, the object is left.
const std::set<std::string> kReleases = {"cuMemFree", "cuMemHostUnregister", "cuStreamDestroy",
                                         "cuEventDestroy"};
// Calls without which nothing can be given back.
const std::set<std::string> kEntries = {"cuCtxGetCurrent", "cuCtxSetCurrent"};

// Functions that the job does not call. tests/kernels has a job with kernels.
const std::set<std::string> kUncalled = {
    "cuGetErrorName",      "cuGetErrorString",     "cuMemGetInfo",       "cuIpcOpenMemHandle",
    "cuIpcCloseMemHandle", "cuIpcOpenEventHandle", "cuMemcpyBatchAsync", "cuModuleLoadData",
    "cuModuleUnload",      "cuModuleGetFunction",  "cuLaunchKernel",     "cuFuncLoad"};

void CheckObjects(const std::string& name, const EmulatedObjects& objects) {
  if (name == "cuDevicePrimaryCtxRelease") {
    CHECK(objects.contexts == 1);
    return;
  }
  CHECK(objects.total() == objects.left_behind);  // nothing lives; this one ended with its context
  if (!kEntries.contains(name)) {
    CHECK(objects.left_behind == kReleases.count(name));
  } else {
    CHECK(objects.left_behind <= 1);
  }
}

// Runs the job once for each call of it, which fails with `code`.
template <typename Check>
void FailEachCall(DriverCode code, Check&& check) {
  const SharedBytes host(4096);
  Control().Reset(1);
  const Status clean = RunJob(host.bytes());
  INFO((clean ? std::string() : clean.error().message()));
  REQUIRE(clean);
  CHECK(Control().Objects().total() == 0);
  const std::map<std::string, uint64_t> told = told_calls;
  std::map<std::string, uint64_t> counts;
  for (const std::string& name : Functions()) {
    INFO(name);
    counts[name] = Control().CallCount(name.c_str());
    CHECK((counts[name] == 0) == kUncalled.contains(name));
  }
  for (const auto& [name, count] : counts) {
    for (uint64_t nth = 1; nth <= count; ++nth) {
      INFO(name << ", call " << nth);
      std::fill(host.bytes().begin(), host.bytes().end(), std::byte{0});
      Control().Reset(nth);
      Control().FailCall(name.c_str(), nth, code);
      const Status status = RunJob(host.bytes());
      CHECK(Control().FaultsLeft() == 0);
      const bool is_told = nth <= told.at(name);
      CHECK(status.has_value() == !is_told);
      if (!status) check(name, status.error());
      if (code == kUnknownCode) CheckObjects(name, Control().Objects());
    }
  }
}

TEST_CASE("Each call fails once at each place", "[device_faults]") {
  FailEachCall(kUnknownCode, [](const std::string& name, const Error& error) {
    CHECK_THAT(error.message(), ContainsSubstring(name));
  });
}

TEST_CASE("A context may end at each call", "[device_faults]") {
  FailEachCall(driver_code::kIllegalAddress, [](const std::string& name, const Error& error) {
    CHECK_THAT(error.message(), ContainsSubstring(name));
    CHECK((error.code() == ErrorCode::kInternal || name == "cuDriverGetVersion"));
  });
}

}  // namespace
}  // namespace lmdbio::device
