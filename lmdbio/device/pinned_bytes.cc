#include "lmdbio/device/pinned_bytes.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/device/device_error.h"

namespace lmdbio::device {
namespace {

constexpr unsigned kFlags = kHostRegisterPortable | kHostRegisterDeviceMap;

Error PinError(const PrimaryContext& context, DriverCode code, const std::string& what) {
  Error error = context.ErrorOf(code, what);
  switch (code) {
    case driver_code::kInvalidValue:
      return Error(ErrorCode::kInvalidArgument,
                   error.message() + ": the range must be mapped, writable memory of the host");
    case driver_code::kAlreadyPinned:
      return Error(ErrorCode::kInvalidArgument, error.message() + ": a part is pinned already");
    case driver_code::kOutOfMemory:
      return Error(ErrorCode::kResourceExhausted,
                   error.message() + ": pin less, or raise the limit of locked memory (ulimit -l)");
    default:
      return error;
  }
}

}  // namespace

Result<PinnedBytes> PinnedBytes::Register(std::shared_ptr<PrimaryContext> context,
                                          std::shared_ptr<PointerCache> cache, MutableBytes host) {
  if (host.empty()) return Fail(ErrorCode::kInvalidArgument, "0 bytes cannot be pinned");
  const std::string what = fmt::format("cuMemHostRegister of {} bytes", host.size());
  LMDBIO_TRY(const DriverCode code, context->Try(what, [&](const DriverTable& driver) {
    return driver.MemHostRegister(host.data(), host.size(), kFlags);
  }));
  if (code != driver_code::kSuccess) return Fail(PinError(*context, code, what));
  auto registration = std::make_unique<Registration>(std::move(context), std::move(cache), host);
  PrimaryContext& owner = *registration->context;
  LMDBIO_TRY_VOID(owner.Run("cuMemHostGetDevicePointer", [&](const DriverTable& driver) {
    return driver.MemHostGetDevicePointer(&registration->address.value, host.data(), 0);
  }));
  registration->cache->AddOwn({.kind = PointerKind::kPinnedHost,
                               .ordinal = owner.ordinal(),
                               .range = {{reinterpret_cast<uint64_t>(host.data())}, host.size()}});
  return PinnedBytes(std::move(registration));
}

PinnedBytes::Registration::~Registration() {
  if (context->is_forked()) return;  // a thread of the parent may have held the cache's mutex
  cache->RemoveOwn({{reinterpret_cast<uint64_t>(host.data())}, host.size()});
  context->Release("cuMemHostUnregister", [this](const DriverTable& driver) {
    return driver.MemHostUnregister(host.data());
  });
}

}  // namespace lmdbio::device
