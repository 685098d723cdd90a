#include "lmdbio/file/io/map_advice.h"

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

}  // namespace

void AdviseWillNeed(Bytes map, Extent extent) {
  // madvise takes addresses at page boundaries only, so the first page is included whole.
  const uint64_t end = std::min<uint64_t>(extent.offset + extent.length_bytes, map.size());
  for (uint64_t at = extent.offset / kMemoryPageBytes * kMemoryPageBytes; at < end;
       at += kStepBytes) {
    ::madvise(const_cast<std::byte*>(map.data()) + at, std::min(kStepBytes, end - at),
              MADV_WILLNEED);
  }
}

}  // namespace lmdbio::file
