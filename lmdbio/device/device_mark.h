// lmdbio/device/device_mark.h - a counter in pinned memory that streams raise and await.
#ifndef LMDBIO_DEVICE_DEVICE_MARK_H_
#define LMDBIO_DEVICE_DEVICE_MARK_H_

#include <atomic>
#include <cstdint>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/pinned_bytes.h"

namespace lmdbio::device {

// Added to a mark, it ends every wait for it: a wait compares (int64_t)(mark - value) >= 0.
inline constexpr uint64_t kMarkPoison = uint64_t{1} << 62;

// A 64-bit word of pinned memory, also of memory that processes share. One rank raises it, by its
// stream or by its host code; all ranks may await it. Values begin at 0, grow, and stay below
// kMarkPoison.
// Lifetime: a view of the pinned memory
// Threads: any; ranks may be processes
class DeviceMark {
 public:
  // Errors: kInvalidArgument  the word is not aligned to 8 bytes, or reaches past the end
  static Result<DeviceMark> In(const PinnedBytes& memory, uint64_t offset);
  static Result<DeviceMark> In(PinnedBytes&&, uint64_t) = delete;

  DeviceAddress address() const { return address_; }
  // With the poison, if there is one.
  uint64_t value() const { return Word().load(std::memory_order_acquire); }
  bool is_poisoned() const { return (value() & kMarkPoison) != 0; }
  // Whether a wait for `value` ends now.
  bool HasReached(uint64_t value) const;

  // By the host, in place of a stream. Keeps the poison.
  // value  [< kMarkPoison, not below the mark]
  void Raise(uint64_t value) const;
  // Ends every wait, of streams and of hosts. Poisoning again changes nothing. A write by a stream
  // that was enqueued before still replaces the word.
  void Poison() const;

 private:
  DeviceMark(uint64_t* word, DeviceAddress address) : word_(word), address_(address) {}

  std::atomic_ref<uint64_t> Word() const { return std::atomic_ref<uint64_t>(*word_); }

  uint64_t* word_;
  DeviceAddress address_;
};

// A wait until a mark has reached `value`, or is poisoned.
struct MarkWait {
  DeviceMark mark;
  uint64_t value = 0;  // [< kMarkPoison]
};

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_DEVICE_MARK_H_
