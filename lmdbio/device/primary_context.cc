#include "lmdbio/device/primary_context.h"

#include <string>

#include <fmt/format.h>

#include "lmdbio/device/device_error.h"

namespace lmdbio::device {

Result<std::shared_ptr<PrimaryContext>> PrimaryContext::Retain(const DriverTable& driver,
                                                               int ordinal, DeviceNumber device) {
  ContextHandle handle = nullptr;
  const DriverCode code = driver.DevicePrimaryCtxRetain(&handle, device);
  if (code != driver_code::kSuccess) {
    return Fail(
        DriverError(driver, code, fmt::format("GPU {}: cuDevicePrimaryCtxRetain", ordinal)));
  }
  return std::shared_ptr<PrimaryContext>(new PrimaryContext(driver, ordinal, device, handle));
}

// A release that fails here has no object left to report it. The context then stays until the
// process ends.
PrimaryContext::~PrimaryContext() {
  if (CheckUsable()) driver_.DevicePrimaryCtxRelease(device_);
}

Status PrimaryContext::EnableAccessTo(const PrimaryContext& owner) {
  if (device_ == owner.device_) return {};
  LMDBIO_TRY_VOID(owner.CheckUsable());
  LMDBIO_TRY(const bool can_access, CanAccess(owner));
  if (!can_access) {
    return Fail(ErrorCode::kUnsupported, fmt::format("GPU {} has no access to memory of GPU {}: {}",
                                                     ordinal_, owner.ordinal_, kNoPeerReasons));
  }
  const std::string what = fmt::format("cuCtxEnablePeerAccess to GPU {}", owner.ordinal_);
  LMDBIO_TRY(const DriverCode code, Try(what, [&](const DriverTable& driver) {
               return driver.CtxEnablePeerAccess(owner.handle_, 0);
             }));
  // The program, or another object of this GPU, may have enabled it.
  if (code == driver_code::kSuccess || code == driver_code::kPeerAccessAlreadyEnabled) return {};
  return Fail(ErrorOf(code, what));
}

// The driver answers this without a current context.
Result<bool> PrimaryContext::CanAccess(const PrimaryContext& owner) {
  if (driver_.DeviceCanAccessPeer == nullptr || driver_.CtxEnablePeerAccess == nullptr) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("GPU {}: this driver gives no access to memory of GPU {}", ordinal_,
                            owner.ordinal_));
  }
  LMDBIO_TRY_VOID(CheckUsable());
  int can_access = 0;
  const DriverCode code = driver_.DeviceCanAccessPeer(&can_access, device_, owner.device_);
  if (code == driver_code::kSuccess) return can_access != 0;
  const std::string what = fmt::format("cuDeviceCanAccessPeer of GPU {}", owner.ordinal_);
  LMDBIO_TRY_VOID(Examine(code, what));
  return Fail(ErrorOf(code, what));
}

Error PrimaryContext::ErrorOf(DriverCode code, std::string_view what) const {
  return DriverError(driver_, code, fmt::format("GPU {}: {}", ordinal_, what));
}

Status PrimaryContext::release_failure() const {
  if (fork_mark_.is_forked()) return {};
  const std::lock_guard lock(mutex_);
  if (release_failure_) return Fail(release_failure_->Copy());
  return {};
}

Status PrimaryContext::CheckUsable() const {
  if (fork_mark_.is_forked()) return Fail(ForkedError());
  const std::lock_guard lock(mutex_);
  if (lost_) return Fail(lost_->Copy());
  return {};
}

Result<ContextHandle> PrimaryContext::Enter() {
  ContextHandle previous = nullptr;
  DriverCode code = driver_.CtxGetCurrent(&previous);
  if (code != driver_code::kSuccess) {
    LMDBIO_TRY_VOID(Examine(code, "cuCtxGetCurrent"));
    return Fail(ErrorOf(code, "cuCtxGetCurrent"));
  }
  if (previous == handle_) return previous;
  code = driver_.CtxSetCurrent(handle_);
  if (code != driver_code::kSuccess) {
    LMDBIO_TRY_VOID(Examine(code, "cuCtxSetCurrent"));
    return Fail(ErrorOf(code, "cuCtxSetCurrent"));
  }
  return previous;
}

void PrimaryContext::Leave(ContextHandle previous) {
  if (previous == nullptr || previous == handle_) return;
  const DriverCode code = driver_.CtxSetCurrent(previous);
  // The thread may have kept a context that has been destroyed since, so there is nothing to give
  // back.
  if (code == driver_code::kInvalidContext) return;
  if (code != driver_code::kSuccess) {
    NoteReleaseFailure(ErrorOf(code, "cuCtxSetCurrent to the thread's own context"));
  }
}

Status PrimaryContext::Examine(DriverCode code, std::string_view what) {
  if (!EndsContext(code)) return {};
  const std::lock_guard lock(mutex_);
  if (!lost_) {
    lost_.emplace(std::move(ErrorOf(code, what)).Within("this process has lost its context"));
  }
  return Fail(lost_->Copy());
}

void PrimaryContext::NoteReleaseFailure(Error error) {
  const std::lock_guard lock(mutex_);
  if (!release_failure_) release_failure_.emplace(std::move(error));
}

}  // namespace lmdbio::device
