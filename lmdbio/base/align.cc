#include "lmdbio/base/align.h"

#include <unistd.h>

namespace lmdbio {

uint64_t MemoryPageBytes() {
  static const auto kBytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return kBytes;
}

}  // namespace lmdbio
