// tests/device/failing_calls.h - runs a job once for each call of the driver in it, which fails.
#ifndef LMDBIO_TESTS_DEVICE_FAILING_CALLS_H_
#define LMDBIO_TESTS_DEVICE_FAILING_CALLS_H_

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::test {

inline constexpr device::DriverCode kUnknownCode = 999;  // it ends no context

// Uses device 0, and then device 1 with it. `host` is memory of 4,096 zeros.
struct DriverJob {
  std::function<Status(device::Device& device, MutableBytes host)> use;
  // None: device 1 is not opened.
  std::function<Status(device::Device& device, device::Device& peer)> use_peer = nullptr;
  std::set<std::string> hidden = {};  // functions that the driver lacks
};

using CallCounts = std::map<std::string, uint64_t>;  // by the name of the function

inline CallCounts CountCalls() {
  CallCounts counts;
  const device::DriverTable table;
  device::ForEachFunction(table, [&](const char* name, device::FunctionNeed, auto) {
    counts[name] = Control().CallCount(name);
  });
  return counts;
}

// Opens the devices, uses them, and closes them. `told` gets the calls before they are closed:
// their destructors can tell nobody of a failure.
inline Status RunJob(const DriverJob& job, MutableBytes host, CallCounts& told) {
  LMDBIO_TRY(const device::DriverTable driver, device::LoadDriver(kDriver));
  std::shared_ptr<device::Device> peer;  // closed last, because its context is current then
  LMDBIO_TRY(const auto opened, device::Device::Open(0, driver));
  LMDBIO_TRY_VOID(job.use(*opened, host));
  if (job.use_peer) {
    // The thread keeps the context of its first call. Now this is to be device 1.
    if (driver.CtxSetCurrent(nullptr) != 0) return Fail(ErrorCode::kInternal, "cuCtxSetCurrent");
    LMDBIO_TRY(peer, device::Device::Open(1, driver));
    LMDBIO_TRY_VOID(job.use_peer(*opened, *peer));
  }
  told = CountCalls();
  LMDBIO_TRY_VOID(opened->release_failure());
  return peer != nullptr ? peer->release_failure() : Status();
}

inline void BeginJob(const DriverJob& job, MutableBytes host, uint64_t seed) {
  std::fill(host.begin(), host.end(), std::byte{0});
  Control().Reset(seed);
  for (const std::string& name : job.hidden) Control().HideFunction(name.c_str());
}

// After a job whose call of `name` failed, but left the context alive.
inline void CheckObjectsAfter(const std::string& name) {
  // Calls that give an object back: if one fails, the object is left.
  static const std::set<std::string> kReleases = {
      "cuMemFree", "cuMemHostUnregister", "cuStreamDestroy", "cuEventDestroy", "cuModuleUnload"};
  // Calls without which nothing can be given back.
  static const std::set<std::string> kEntries = {"cuCtxGetCurrent", "cuCtxSetCurrent"};
  const EmulatedObjects objects = Control().Objects();
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

// Runs the job without a failure, and then once for each call of it, which fails with `code`. A
// failure is an error, which `check` gets with the name of the function; nothing is left.
// Returns: the calls of the job
template <typename Check>
CallCounts FailEachCall(const DriverJob& job, device::DriverCode code, Check&& check) {
  const SharedBytes host(4096);
  CallCounts told;
  BeginJob(job, host.bytes(), 1);
  const Status clean = RunJob(job, host.bytes(), told);
  INFO((clean ? std::string() : clean.error().message()));
  REQUIRE(clean);
  CHECK(Control().Objects().total() == 0);
  const CallCounts counts = CountCalls();
  for (const auto& [name, count] : counts) {
    for (uint64_t nth = 1; nth <= count; ++nth) {
      INFO(name << ", call " << nth);
      BeginJob(job, host.bytes(), nth);
      Control().FailCall(name.c_str(), nth, code);
      CallCounts unused;
      const Status status = RunJob(job, host.bytes(), unused);
      CHECK(Control().FaultsLeft() == 0);
      const bool is_told = nth <= told.at(name);
      CHECK(status.has_value() == !is_told);
      if (!status) check(name, status.error());
      if (code == kUnknownCode) CheckObjectsAfter(name);
    }
  }
  return counts;
}

// Runs a job of several ranks for each call of the driver in it, which fails on one of them. The
// ranks go through the calls in the same order. `run` gets the name of the function and the number
// of the call, adds its complaints, and returns whether the job came to that call.
// calls_max      of each function
// functions_min  that the job must call
// Returns: all complaints
template <typename Run>
std::string FailAtEachPlace(uint64_t calls_max, size_t functions_min, Run&& run) {
  // The test itself makes these, or each call does (tests/device has their failures).
  static const std::set<std::string> kOthers = {"cuStreamQuery", "cuCtxGetCurrent",
                                                "cuCtxSetCurrent"};
  std::string complaints;
  std::set<std::string> met;
  for (const auto& [name, count] : CountCalls()) {
    if (kOthers.contains(name)) continue;
    for (uint64_t nth = 1; nth <= calls_max && run(name, nth, complaints); ++nth) met.insert(name);
  }
  if (met.size() < functions_min) {
    complaints += fmt::format("only {} functions are called", met.size());
  }
  return complaints;
}

// The complaint about an error of a rank of such a job; "": it is right. The victim has the failure
// of the driver, and the others have the name of the victim.
inline std::string WrongEnd(const Error& error, int rank, int victim) {
  if (rank == victim) {
    return error.code() == ErrorCode::kInternal ? "" : "not kInternal: " + error.message();
  }
  const bool is_named = error.message().find(fmt::format("rank {}", victim)) != std::string::npos;
  if (error.code() == ErrorCode::kPeerFailed && is_named) return "";
  return "not kPeerFailed with the name of the rank: " + error.message();
}

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_DEVICE_FAILING_CALLS_H_
