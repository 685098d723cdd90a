// lmdbio/device/pointer_cache.h - the kind of memory behind a pointer: plain, pinned, managed or
// device memory.
//
// A program passes pointers whose kind lmdbio does not know. The driver tells, but asking costs a
// call for each tensor and iteration. Awan et al. (V-B) remember the answers by address. Their
// first variant cannot notice that a program frees memory and allocates again at the same address.
// Their second one intercepts the program's calls of the driver, which lmdbio does not do in other
// people's processes. Instead:
//
// - Memory that lmdbio has allocated, imported or pinned is known exactly, without a call.
// - An answer about other memory is kept with its buffer id, which the driver gives out only once
//   in a process. A later hit asks for this one attribute, so it is right also after the address
//   has got other memory.
// - An answer "plain host memory" is not kept, because the program may pin that memory later.
//
// Source: Awan et al. V-B; docs/device.md
#ifndef LMDBIO_DEVICE_POINTER_CACHE_H_
#define LMDBIO_DEVICE_POINTER_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/primary_context.h"

namespace lmdbio::device {

enum class PointerKind {
  kPlainHost,   // not known to the driver: the device cannot use it
  kPinnedHost,  // registered with the driver, or allocated by it on the host
  kDevice,
  kManaged,  // moves between host and device
};

struct PointerFacts {
  PointerKind kind = PointerKind::kPlainHost;
  // Of its GPU; of memory of another process, the GPU that has imported it; -1 for kPlainHost.
  int ordinal = -1;
  DeviceSpan range;            // the allocation that holds the pointer; empty for kPlainHost
  uint64_t buffer_id = 0;      // unique for each allocation of the process; 0 for kPlainHost
  bool can_be_shared = false;  // Device::Share of such memory would work
};

// How a hit about memory of others is checked. Memory of lmdbio is known in all of them.
enum class CacheCheck {
  kBufferId,  // by one attribute of the driver: always right
  kNone,      // not at all, as the first variant of Awan et al.: right while nothing is freed
  kNoCache,   // there are no hits: each answer is a full query, for comparison
};

struct PointerCacheCounts {
  uint64_t own_hits = 0;  // memory of lmdbio: no call
  uint64_t hits = 0;      // memory of others; one short call, or none with kNone
  uint64_t queries = 0;   // full queries
  uint64_t stale = 0;     // queries because the buffer id had changed
};

// Threads: any
class PointerCache {
 public:
  static constexpr size_t kRangesMax = 4096;

  // ranges_max  how many ranges of others are kept; the oldest is dropped first [> 0]
  explicit PointerCache(CacheCheck check = CacheCheck::kBufferId, size_t ranges_max = kRangesMax)
      : check_(check), ranges_max_(ranges_max) {}

  // Errors: as PrimaryContext::Run
  Result<PointerFacts> Describe(PrimaryContext& context, const void* pointer);

  // Memory that lmdbio itself has allocated, imported or pinned, and gives back.
  void AddOwn(const PointerFacts& facts);
  void RemoveOwn(DeviceSpan range);

  PointerCacheCounts counts() const;

 private:
  using Ranges = std::map<DeviceAddress, PointerFacts>;  // by their begin

  // Replaces all ranges that overlap with it.
  void Keep(const PointerFacts& facts);
  void DropForeign(DeviceSpan range);

  const CacheCheck check_;
  const size_t ranges_max_;
  mutable std::mutex mutex_;  // of all below; never held while the driver is called
  Ranges own_;
  Ranges foreign_;
  std::deque<DeviceAddress> by_age_;  // begins of foreign_, the oldest first
  PointerCacheCounts counts_;
};

// Asks the driver for all facts, past every cache.
// Errors: as PrimaryContext::Run
Result<PointerFacts> QueryPointer(PrimaryContext& context, const void* pointer);

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_POINTER_CACHE_H_
