#include "lmdbio/io/uring_ring.h"

#include <liburing.h>

#include <cerrno>
#include <system_error>

#include <fmt/format.h>

namespace lmdbio::io {
namespace {

Error Refused(int error_number) {
  return Error(ErrorCode::kUnsupported, fmt::format("io_uring is refused ({})",
                                                    std::generic_category().message(error_number)));
}

// Makes one request that does nothing. Some sandboxes allow a ring and refuse its use.
Status TryRing(io_uring* ring) {
  io_uring_prep_nop(io_uring_get_sqe(ring));
  int rc = 0;
  do {
    rc = io_uring_submit_and_wait(ring, 1);
  } while (rc == -EINTR);
  io_uring_cqe* cqe = nullptr;
  if (rc >= 0) rc = io_uring_peek_cqe(ring, &cqe);
  if (rc < 0) return Fail(Refused(-rc));
  io_uring_cqe_seen(ring, cqe);
  return {};
}

}  // namespace

void RingDeleter::operator()(io_uring* ring) const {
  io_uring_queue_exit(ring);
  delete ring;
}

// None of the flags that tie a ring to the thread which made it, faster as they are: an engine is
// opened by one thread and used by another. IORING_SETUP_CLAMP came with the same kernel, 5.6, as
// the read requests made here, so that earlier ones refuse the ring and not each read.
Result<UniqueRing> CreateRing(uint32_t depth) {
  auto memory = std::make_unique<io_uring>();
  const int rc = io_uring_queue_init(depth, memory.get(), IORING_SETUP_CLAMP);
  if (rc < 0) return Fail(Refused(-rc));
  UniqueRing ring(memory.release());
  LMDBIO_TRY_VOID(TryRing(ring.get()));
  return ring;
}

}  // namespace lmdbio::io
