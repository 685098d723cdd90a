#include "lmdbio/device/device_error.h"

#include <fmt/format.h>

namespace lmdbio::device {
namespace {

ErrorCode CodeOf(DriverCode code) {
  switch (code) {
    case driver_code::kOutOfMemory:
      return ErrorCode::kResourceExhausted;
    case driver_code::kInvalidImage:
    case driver_code::kNoBinaryForGpu:
    case driver_code::kPeerAccessUnsupported:
    case driver_code::kInvalidPtx:
    case driver_code::kNoPtxCompiler:
    case driver_code::kUnsupportedPtxVersion:
    case driver_code::kTooManyPeers:
    case driver_code::kNotSupported:
      return ErrorCode::kUnsupported;
    case driver_code::kNotPermitted:
      return ErrorCode::kPermission;
    default:
      return ErrorCode::kInternal;
  }
}

}  // namespace

std::string DriverReason(const DriverTable& driver, DriverCode code) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (driver.GetErrorName(code, &name) != driver_code::kSuccess || name == nullptr) {
    return fmt::format("code {}", code);
  }
  if (driver.GetErrorString(code, &text) != driver_code::kSuccess || text == nullptr) return name;
  return fmt::format("{} ({})", name, text);
}

Error DriverError(const DriverTable& driver, DriverCode code, std::string_view what) {
  return Error(CodeOf(code), fmt::format("{}: {}", what, DriverReason(driver, code)));
}

bool EndsContext(DriverCode code) {
  switch (code) {
    case driver_code::kDeinitialized:
    case driver_code::kUncorrectableMemory:
    case driver_code::kUncorrectableLink:
    case driver_code::kIllegalAddress:
    case driver_code::kContextIsDestroyed:
    case driver_code::kAssert:
    case driver_code::kHardwareStack:
    case driver_code::kIllegalInstruction:
    case driver_code::kMisalignedAddress:
    case driver_code::kInvalidAddressSpace:
    case driver_code::kInvalidProgramCounter:
    case driver_code::kLaunchFailed:
      return true;
    default:
      return false;
  }
}

Error ForkedError() {
  return Error(ErrorCode::kUnsupported,
               "the GPU was opened by the parent of this process, before fork(), and a driver does "
               "not survive fork(): start the process with exec (\"spawn\" in Python)");
}

}  // namespace lmdbio::device
