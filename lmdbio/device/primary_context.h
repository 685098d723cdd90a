// lmdbio/device/primary_context.h - the primary context of a device: the state of a process there.
//
// A process has one primary context for each device. The CUDA runtime uses it, too, so streams and
// memory of a trainer and of lmdbio work together. Each object of this room holds the context, so
// objects may be destroyed in any order.
#ifndef LMDBIO_DEVICE_PRIMARY_CONTEXT_H_
#define LMDBIO_DEVICE_PRIMARY_CONTEXT_H_

#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "lmdbio/base/fork_mark.h"
#include "lmdbio/base/status.h"
#include "lmdbio/device/driver_table.h"

namespace lmdbio::device {

// Threads: any
class PrimaryContext {
 public:
  // driver  must live as long as the context
  // Errors: as DriverError
  static Result<std::shared_ptr<PrimaryContext>> Retain(const DriverTable& driver, int ordinal,
                                                        DeviceNumber device);
  // Gives the context back. The driver destroys it with its last user in this process.
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  const DriverTable& driver() const { return driver_; }
  int ordinal() const { return ordinal_; }
  // Whether this process is a child, by fork(), of the one that retained the context.
  bool is_forked() const { return fork_mark_.is_forked(); }

  // Whether calls can reach the driver. Does not call it.
  // Errors: as Try
  Status CheckUsable() const;

  // Runs `call(driver)` with this context current in the calling thread. A thread that had another
  // context has it again afterwards; a thread without one keeps this context.
  // Returns: the driver's code, if it does not end the context
  // Errors: kInternal     the code ends the context, or an earlier one has; from then on each call
  //                       returns this first error, and the driver is not called
  //         kUnsupported  this process is a child of fork()
  template <typename Call>
  Result<DriverCode> Try(std::string_view what, Call&& call) {
    LMDBIO_TRY_VOID(CheckUsable());
    LMDBIO_TRY(const ContextHandle previous, Enter());
    const DriverCode code = std::forward<Call>(call)(driver_);
    Leave(previous);
    if (code != driver_code::kSuccess) LMDBIO_TRY_VOID(Examine(code, what));
    return code;
  }

  // The same, and every code but kSuccess is an error.
  // Errors: as Try and DriverError, with "GPU N: WHAT: " in front
  template <typename Call>
  Status Run(std::string_view what, Call&& call) {
    LMDBIO_TRY(const DriverCode code, Try(what, std::forward<Call>(call)));
    if (code != driver_code::kSuccess) return Fail(ErrorOf(code, what));
    return {};
  }

  // For destructors: runs `call`, and keeps the first failure for release_failure. Does nothing in
  // a child of fork() or after the end of the context, because the driver has nothing to release.
  template <typename Call>
  void Release(std::string_view what, Call&& call) {
    if (!CheckUsable()) return;
    if (Status status = Run(what, std::forward<Call>(call)); !status) {
      NoteReleaseFailure(std::move(status).error());
    }
  }

  // Lets work of this GPU use memory of another one, until one of the two contexts ends. Memory of
  // this GPU needs no access.
  // Errors: kUnsupported  this GPU does not reach the other one, or the driver gives no access;
  //                       names both GPUs
  //         kInternal     the context of `owner` has ended; and as Run
  Status EnableAccessTo(const PrimaryContext& owner);

  // "GPU N: WHAT: CUDA_ERROR_...", of a code that Try has returned.
  Error ErrorOf(DriverCode code, std::string_view what) const;

  // Errors: the first failure to give something back to the driver, as DriverError. It stays
  //         allocated until the process ends.
  Status release_failure() const;

 private:
  PrimaryContext(const DriverTable& driver, int ordinal, DeviceNumber device, ContextHandle handle)
      : driver_(driver), ordinal_(ordinal), device_(device), handle_(handle) {}

  // Whether this GPU can be given access to memory of another one.
  Result<bool> CanAccess(const PrimaryContext& owner);
  // Returns: the context that was current before
  Result<ContextHandle> Enter();
  void Leave(ContextHandle previous);
  // Remembers a code that ends the context, and returns it as an error.
  Status Examine(DriverCode code, std::string_view what);
  void NoteReleaseFailure(Error error);

  const DriverTable& driver_;
  const int ordinal_;
  const DeviceNumber device_;
  const ContextHandle handle_;
  const ForkMark fork_mark_;
  mutable std::mutex mutex_;  // of the next two; not for use in a child of fork()
  std::optional<Error> lost_;
  std::optional<Error> release_failure_;
};

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_PRIMARY_CONTEXT_H_
