#include "lmdbio/file/map/map_advice.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lmdbio/base/align.h"

namespace lmdbio::file {
namespace {

// The kernel silently limits one request to its read-ahead window. This is the default window, and
// often the window of network file systems.
constexpr uint64_t kStepBytes = 128 << 10;
static_assert(kStepBytes % kMemoryPageBytesMax == 0);

}  // namespace

void AdviseWillNeed(Bytes map, Extent extent) {
  const Extent advised = AdvisedExtent(map.size(), extent, MemoryPageBytes());
  const uint64_t end = advised.offset + advised.length_bytes;
  for (uint64_t at = advised.offset; at < end; at += kStepBytes) {
    ::madvise(const_cast<std::byte*>(map.data()) + at, std::min(kStepBytes, end - at),
              MADV_WILLNEED);
  }
}

}  // namespace lmdbio::file
