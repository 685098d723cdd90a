// A mark is a view of pinned memory, which must outlive it.
#include <utility>

#include "lmdbio/device/device_mark.h"

namespace lmdbio::device {

uint64_t ValueOf(PinnedBytes memory) {
#ifdef LMDBIO_BAD
  const Result<DeviceMark> mark = DeviceMark::In(std::move(memory), 0);
#else
  const Result<DeviceMark> mark = DeviceMark::In(memory, 0);
#endif
  return mark ? mark->value() : 0;
}

}  // namespace lmdbio::device
