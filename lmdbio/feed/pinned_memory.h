// lmdbio/feed/pinned_memory.h - pinned memory of this process, which grows.
#ifndef LMDBIO_FEED_PINNED_MEMORY_H_
#define LMDBIO_FEED_PINNED_MEMORY_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/pinned_bytes.h"

namespace lmdbio::feed {

// Threads: one at a time.
class PinnedMemory {
 public:
  // Makes it at least this large. The content is lost then, and the device is waited for.
  // Requires: no work uses the memory
  // Errors: kResourceExhausted  no memory, or it cannot be pinned. It is empty then
  //         and as Device::Pin
  Status Grow(device::Device& gpu, uint64_t size_bytes);

  uint64_t size_bytes() const { return pinned_ ? pinned_->bytes().size() : 0; }
  // Requires: size_bytes() > 0
  const device::PinnedBytes& pinned() const { return *pinned_; }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::optional<device::PinnedBytes> pinned_;  // in memory_, so it ends first
};

}  // namespace lmdbio::feed
#endif  // LMDBIO_FEED_PINNED_MEMORY_H_
