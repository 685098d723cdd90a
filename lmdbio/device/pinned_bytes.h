// lmdbio/device/pinned_bytes.h - host memory that the device can read and write.
#ifndef LMDBIO_DEVICE_PINNED_BYTES_H_
#define LMDBIO_DEVICE_PINNED_BYTES_H_

#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/pointer_cache.h"
#include "lmdbio/device/primary_context.h"

namespace lmdbio::device {

// Host memory that exists already, registered with the driver. Its pages stay in memory. It may be
// shared memory, which then each process registers for itself.
// Lifetime: the memory stays mapped until this object is destroyed. No work of a stream uses it at
//           that time.
// Threads: any, but one for the move and the destructor
class PinnedBytes {
 public:
  // Called by Device::Pin, which has the contract.
  // Errors: as Device::Pin
  static Result<PinnedBytes> Register(std::shared_ptr<PrimaryContext> context,
                                      std::shared_ptr<PointerCache> cache, MutableBytes host);

  // As the host sees it.
  MutableBytes bytes() const { return registration_->host; }
  // As the device sees it.
  DeviceSpan span() const { return {registration_->address, registration_->host.size()}; }

 private:
  struct Registration {
    Registration(std::shared_ptr<PrimaryContext> its_context,
                 std::shared_ptr<PointerCache> its_cache, MutableBytes memory)
        : context(std::move(its_context)), cache(std::move(its_cache)), host(memory) {}
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

    std::shared_ptr<PrimaryContext> context;
    std::shared_ptr<PointerCache> cache;
    MutableBytes host;
    DeviceAddress address;
  };

  explicit PinnedBytes(std::unique_ptr<Registration> registration)
      : registration_(std::move(registration)) {}

  std::unique_ptr<Registration> registration_;  // never null except after a move
};

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_PINNED_BYTES_H_
