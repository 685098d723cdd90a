// lmdbio/device/device_stream.h - work of a device that runs in order.
#ifndef LMDBIO_DEVICE_DEVICE_STREAM_H_
#define LMDBIO_DEVICE_DEVICE_STREAM_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/device_event.h"
#include "lmdbio/device/device_mark.h"
#include "lmdbio/device/driver_table.h"
#include "lmdbio/device/pinned_bytes.h"
#include "lmdbio/device/primary_context.h"

namespace lmdbio::device {

// The threads of one launch of a kernel.
struct LaunchShape {
  uint32_t blocks = 0;   // [> 0]
  uint32_t threads = 0;  // [1 to 1,024] in each block
};

// Each call enqueues work and returns. Only Synchronize waits.
//
// Memory, pinned memory and events of work that is under way stay alive until it is done: a stream
// does not hold them.
//
// Errors of every call: as PrimaryContext::Run. A failure of earlier work on the device may be
//                       reported by any later call.
// Threads: any; calls of several threads are enqueued in some order
class DeviceStream {
 public:
  // Called by Device::MakeStream, which has the contract.
  // Errors: as Device::MakeStream
  static Result<DeviceStream> Make(std::shared_ptr<PrimaryContext> context);
  // A stream of the program, which keeps it; null: the default stream.
  static DeviceStream Borrow(std::shared_ptr<PrimaryContext> context, StreamHandle handle);

  // Between addresses of devices. 0 bytes are no work.
  // Errors: see above
  Status Copy(DeviceAddress to, DeviceAddress from, uint64_t size_bytes);
  // From host to device. The host memory is read when the copy runs, not when this returns.
  // Errors: kInvalidArgument  the range is not inside `from`; and see above
  Status CopyIn(DeviceAddress to, const PinnedBytes& from, uint64_t offset, uint64_t size_bytes);
  // From device to host.
  // Errors: kInvalidArgument  the range is not inside `to`; and see above
  Status CopyOut(const PinnedBytes& to, uint64_t offset, DeviceAddress from, uint64_t size_bytes);
  // Fills with one byte.
  // Errors: see above
  Status Fill(DeviceAddress to, std::byte value, uint64_t size_bytes);

  // Runs a kernel that takes one parameter, whose bytes this call copies.
  // function   of a module of this device, which lives until the kernel is done
  // parameter  of the size that the kernel declares
  // Errors: see above
  Status Launch(FunctionHandle function, const LaunchShape& shape, const void* parameter);

  // The event stands for all work that was enqueued here before. An earlier record is forgotten,
  // but not by waits that were enqueued for it.
  // Errors: kInvalidArgument  the stream is of another device, or was destroyed; and see above
  Status Record(DeviceEvent& event);
  // Work that is enqueued here later begins after the last record of the event.
  // Errors: kInvalidArgument  nothing was recorded, so there would be no wait; an event of another
  //                           process is not checked; the stream was destroyed; and see above
  Status Await(const DeviceEvent& event);

  // Sets a mark when the work that was enqueued here before is done, and its results are visible.
  // value  [< kMarkPoison, not below the mark]
  // Errors: kInvalidArgument  value is too large
  //         kUnsupported      the device or driver has no such operation; and see above
  Status Raise(const DeviceMark& mark, uint64_t value);
  // Work that is enqueued here later begins when all marks have reached their values, or are
  // poisoned. One call of the driver for each kMemoryOperationsMax marks.
  // Requires: all that raises the marks is enqueued, or will be without any wait for this stream;
  //           otherwise the device waits for ever
  // Errors: as Raise
  Status AwaitAll(std::span<const MarkWait> waits);

  // Whether work that is enqueued here goes into a graph, and does not run. Does not wait.
  // Errors: kInvalidArgument  the stream is of another device, or was destroyed; and see above
  Result<bool> IsCaptured() const;

  // Whether all work is done. Does not wait.
  // Errors: see above
  Result<bool> IsDone() const;
  // Waits until all work is done. For tests, tools and the end of a job.
  // Errors: see above
  Status Synchronize();

  StreamHandle native() const { return owned_->handle; }

 private:
  struct OwnedStream {
    explicit OwnedStream(std::shared_ptr<PrimaryContext> its_context)
        : context(std::move(its_context)) {}
    ~OwnedStream();
    OwnedStream(const OwnedStream&) = delete;
    OwnedStream& operator=(const OwnedStream&) = delete;

    std::shared_ptr<PrimaryContext> context;
    StreamHandle handle = nullptr;
    bool is_borrowed = false;
  };

  explicit DeviceStream(std::unique_ptr<OwnedStream> owned) : owned_(std::move(owned)) {}

  template <typename Call>
  Status RunOnHandle(std::string_view what, Call&& call) const;

  std::unique_ptr<OwnedStream> owned_;  // never null except after a move
};

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_DEVICE_STREAM_H_
