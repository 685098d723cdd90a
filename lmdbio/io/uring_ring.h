// lmdbio/io/uring_ring.h - an io_uring that is closed once.
#ifndef LMDBIO_IO_URING_RING_H_
#define LMDBIO_IO_URING_RING_H_

#include <cstdint>
#include <memory>

#include "lmdbio/base/status.h"

struct io_uring;

namespace lmdbio::io {

struct RingDeleter {
  void operator()(io_uring* ring) const;
};
using UniqueRing = std::unique_ptr<io_uring, RingDeleter>;

// A ring for `depth` reads at once, or for as many as the kernel allows. It may be made by one
// thread and used by another.
// Errors: kUnsupported  "io_uring is refused (REASON)": this kernel (before 5.6) or container has
//                       none for us, or refuses the first request
Result<UniqueRing> CreateRing(uint32_t depth);

}  // namespace lmdbio::io
#endif  // LMDBIO_IO_URING_RING_H_
