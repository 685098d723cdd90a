// lmdbio/device/device_event.h - a point in the work of a stream.
#ifndef LMDBIO_DEVICE_DEVICE_EVENT_H_
#define LMDBIO_DEVICE_DEVICE_EVENT_H_

#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/device/driver_table.h"
#include "lmdbio/device/primary_context.h"

namespace lmdbio::device {

enum class DeviceEventKind {
  kLocal,   // for streams of this process
  kShared,  // for streams of other processes of this host, too
  kTimed,   // as kLocal; tells the time between two events
};

// Plain data, to be sent to another process of this host, which opens the event with it.
struct EventTicket {
  IpcEventHandle handle;
  uint64_t process = 0;  // ProcessToken() of the owner
};

// DeviceStream::Record and DeviceStream::Await use it.
// Lifetime: an event of another process stays with its owner, which destroys it after all others
// Threads: one at a time
class DeviceEvent {
 public:
  // Called by Device::MakeEvent, which has the contract.
  // Errors: as Device::MakeEvent
  static Result<DeviceEvent> Make(std::shared_ptr<PrimaryContext> context, DeviceEventKind kind);
  // Called by Device::Import, which has the contract.
  // Errors: as Device::Import
  static Result<DeviceEvent> Open(std::shared_ptr<PrimaryContext> context,
                                  const EventTicket& ticket);

  // Errors: kInvalidArgument  the event is not kShared, or it is of another process
  //         kUnsupported      the driver has no events between processes
  Result<EventTicket> Ticket() const;

  // Whether the work before the last Record is done. True if nothing was recorded. Does not wait.
  // Errors: as PrimaryContext::Run
  Result<bool> IsDone() const;

  // The time on the device between the last Record of `begin` and that of this event.
  // Errors: kInvalidArgument  one of the two is not kTimed, was not recorded, or is not done
  Result<double> MillisecondsSince(const DeviceEvent& begin) const;

  EventHandle native() const { return owned_->handle; }
  const std::shared_ptr<PrimaryContext>& context() const { return owned_->context; }
  bool is_of_other_process() const { return owned_->is_opened; }
  // Whether this process has recorded it.
  bool is_recorded() const { return is_recorded_; }

 private:
  friend class DeviceStream;

  struct OwnedEvent {
    OwnedEvent(std::shared_ptr<PrimaryContext> its_context, DeviceEventKind its_kind)
        : context(std::move(its_context)), kind(its_kind) {}
    ~OwnedEvent();
    OwnedEvent(const OwnedEvent&) = delete;
    OwnedEvent& operator=(const OwnedEvent&) = delete;

    std::shared_ptr<PrimaryContext> context;
    DeviceEventKind kind;
    bool is_opened = false;
    EventHandle handle = nullptr;
  };

  explicit DeviceEvent(std::unique_ptr<OwnedEvent> owned) : owned_(std::move(owned)) {}

  std::unique_ptr<OwnedEvent> owned_;  // never null except after a move
  bool is_recorded_ = false;
};

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_DEVICE_EVENT_H_
