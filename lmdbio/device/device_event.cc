#include "lmdbio/device/device_event.h"

#include <utility>

#include "lmdbio/device/process_token.h"

namespace lmdbio::device {
namespace {

constexpr const char* kNoSharedEvents = "this driver has no events between processes";

unsigned FlagsOf(DeviceEventKind kind) {
  switch (kind) {
    case DeviceEventKind::kTimed:
      return 0;
    case DeviceEventKind::kShared:
      return kEventDisableTiming | kEventInterprocess;
    default:
      return kEventDisableTiming;
  }
}

}  // namespace

Result<DeviceEvent> DeviceEvent::Make(std::shared_ptr<PrimaryContext> context,
                                      DeviceEventKind kind) {
  auto owned = std::make_unique<OwnedEvent>(std::move(context), kind);
  LMDBIO_TRY_VOID(owned->context->Run("cuEventCreate", [&](const DriverTable& driver) {
    return driver.EventCreate(&owned->handle, FlagsOf(kind));
  }));
  return DeviceEvent(std::move(owned));
}

Result<DeviceEvent> DeviceEvent::Open(std::shared_ptr<PrimaryContext> context,
                                      const EventTicket& ticket) {
  if (ticket.process == ProcessToken()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the ticket is for an event of this process: use the event itself");
  }
  if (context->driver().IpcOpenEventHandle == nullptr) {
    return Fail(ErrorCode::kUnsupported, kNoSharedEvents);
  }
  auto owned = std::make_unique<OwnedEvent>(std::move(context), DeviceEventKind::kShared);
  owned->is_opened = true;
  LMDBIO_TRY(const DriverCode code, owned->context->Try("cuIpcOpenEventHandle", [&](auto& driver) {
    return driver.IpcOpenEventHandle(&owned->handle, ticket.handle);
  }));
  if (code != driver_code::kSuccess) {
    const Error error = owned->context->ErrorOf(code, "cuIpcOpenEventHandle");
    return Fail(ErrorCode::kUnsupported,
                error.message() + ": events of other processes cannot be opened here");
  }
  return DeviceEvent(std::move(owned));
}

DeviceEvent::OwnedEvent::~OwnedEvent() {
  if (handle == nullptr) return;
  context->Release("cuEventDestroy",
                   [this](const DriverTable& driver) { return driver.EventDestroy(handle); });
}

Result<EventTicket> DeviceEvent::Ticket() const {
  if (owned_->kind != DeviceEventKind::kShared || owned_->is_opened) {
    return Fail(ErrorCode::kInvalidArgument,
                "only an event that this process has made as kShared has a ticket");
  }
  if (owned_->context->driver().IpcGetEventHandle == nullptr) {
    return Fail(ErrorCode::kUnsupported, kNoSharedEvents);
  }
  EventTicket ticket = {.handle = {}, .process = ProcessToken()};
  LMDBIO_TRY_VOID(owned_->context->Run("cuIpcGetEventHandle", [&](const DriverTable& driver) {
    return driver.IpcGetEventHandle(&ticket.handle, owned_->handle);
  }));
  return ticket;
}

Result<bool> DeviceEvent::IsDone() const {
  LMDBIO_TRY(const DriverCode code, owned_->context->Try("cuEventQuery", [&](auto& driver) {
    return driver.EventQuery(owned_->handle);
  }));
  if (code == driver_code::kSuccess) return true;
  if (code == driver_code::kNotReady) return false;
  return Fail(owned_->context->ErrorOf(code, "cuEventQuery"));
}

Result<double> DeviceEvent::MillisecondsSince(const DeviceEvent& begin) const {
  for (const DeviceEvent* const event : {&begin, this}) {
    if (event->owned_->kind == DeviceEventKind::kTimed && event->is_recorded_) continue;
    return Fail(ErrorCode::kInvalidArgument,
                "only events of kind kTimed that were recorded have a time");
  }
  float milliseconds = 0;
  LMDBIO_TRY(const DriverCode code, owned_->context->Try("cuEventElapsedTime", [&](auto& driver) {
    return driver.EventElapsedTime(&milliseconds, begin.owned_->handle, owned_->handle);
  }));
  if (code == driver_code::kNotReady) {
    return Fail(ErrorCode::kInvalidArgument, "the work before one of the two events is not done");
  }
  if (code != driver_code::kSuccess) {
    return Fail(owned_->context->ErrorOf(code, "cuEventElapsedTime"));
  }
  return static_cast<double>(milliseconds);
}

}  // namespace lmdbio::device
