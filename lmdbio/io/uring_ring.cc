#include "lmdbio/io/uring_ring.h"

#include <liburing.h>

#include <system_error>

#include <fmt/format.h>

namespace lmdbio::io {

void RingDeleter::operator()(io_uring* ring) const {
  io_uring_queue_exit(ring);
  delete ring;
}

// None of the flags that tie a ring to the thread which made it, faster as they are: an engine is
// opened by one thread and used by another. IORING_SETUP_CLAMP came with the same kernel, 5.6, as
// the read requests made here, so that earlier ones refuse the ring and not each read.
Result<UniqueRing> CreateRing(uint32_t depth) {
  auto ring = std::make_unique<io_uring>();
  const int rc = io_uring_queue_init(depth, ring.get(), IORING_SETUP_CLAMP);
  if (rc < 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("io_uring is refused ({})", std::generic_category().message(-rc)));
  }
  return UniqueRing(ring.release());
}

}  // namespace lmdbio::io
