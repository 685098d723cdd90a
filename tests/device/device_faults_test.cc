// Each call of the driver fails once at each place of a small job. The job ends with an error that
// names the call, and nothing stays allocated.

#include <set>
#include <string>

#include "lmdbio/device/device.h"
#include "tests/device/failing_calls.h"
#include "tests/support/catch.h"

namespace lmdbio::device {
namespace {

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
  LMDBIO_TRY_VOID(second.AwaitAll(std::array{MarkWait{mark, 1}}));
  LMDBIO_TRY_VOID(second.CopyOut(pinned, 1024, memory.begin(), 1024));
  LMDBIO_TRY_VOID(second.IsCaptured());
  LMDBIO_TRY_VOID(second.IsDone());
  LMDBIO_TRY_VOID(end.IsDone());
  LMDBIO_TRY_VOID(second.Synchronize());
  LMDBIO_TRY_VOID(end.MillisecondsSince(begin));
  return {};
}

// One device gets access to memory of the other one.
Status UsePeer(Device& device, Device& peer) {
  LMDBIO_TRY(const DeviceMemory memory, peer.Allocate(1024));
  LMDBIO_TRY(const MemoryTicket ticket, peer.Share(memory));
  LMDBIO_TRY_VOID(device.Import(ticket));
  return {};
}

const test::DriverJob kJob = {.use = UseAll, .use_peer = UsePeer};

// Functions that the job does not call. tests/kernels has a job with kernels.
const std::set<std::string> kUncalled = {
    "cuGetErrorName",      "cuGetErrorString",     "cuMemGetInfo",       "cuIpcOpenMemHandle",
    "cuIpcCloseMemHandle", "cuIpcOpenEventHandle", "cuMemcpyBatchAsync", "cuModuleLoadData",
    "cuModuleUnload",      "cuModuleGetFunction",  "cuLaunchKernel",     "cuFuncLoad"};

TEST_CASE("Each call fails once at each place", "[device_faults]") {
  const auto counts =
      test::FailEachCall(kJob, test::kUnknownCode, [](const std::string& name, const Error& error) {
        CHECK_THAT(error.message(), ContainsSubstring(name));
      });
  for (const auto& [name, count] : counts) {
    INFO(name);
    CHECK((count == 0) == kUncalled.contains(name));
  }
}

TEST_CASE("A context may end at each call", "[device_faults]") {
  test::FailEachCall(
      kJob, driver_code::kIllegalAddress, [](const std::string& name, const Error& error) {
        CHECK_THAT(error.message(), ContainsSubstring(name));
        CHECK((error.code() == ErrorCode::kInternal || name == "cuDriverGetVersion"));
      });
}

}  // namespace
}  // namespace lmdbio::device
