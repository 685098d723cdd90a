// lmdbio/io/uring_batch.h - a list of reads, as many in flight as the ring is deep.
#ifndef LMDBIO_IO_URING_BATCH_H_
#define LMDBIO_IO_URING_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"
#include "lmdbio/io/uring_ring.h"

namespace lmdbio::io {

// Threads: one at a time.
class UringBatch {
 public:
  // Errors: kUnsupported  this kernel or container has no io_uring for us
  static Result<UringBatch> Create(uint32_t depth);

  // Called once for each request, in order of completion, with the bytes that arrived (0 after a
  // failure). It brings the request to an end: reads the rest, or says why that cannot be.
  using Finish = std::function<Status(const ReadRequest& request, size_t done_bytes)>;

  // Performs `requests`. After a failure nothing new is started, and what was in flight is awaited:
  // when Run returns, the kernel writes to no destination any more.
  // Errors: those of `finish`; kIo if the ring itself fails
  Status Run(int fd, std::span<const ReadRequest> requests, const Finish& finish);

 private:
  UringBatch(UniqueRing ring, uint32_t depth) : ring_(std::move(ring)), depth_(depth) {}
  void Drain(uint32_t in_flight);

  UniqueRing ring_;
  uint32_t depth_;
};

}  // namespace lmdbio::io
#endif  // LMDBIO_IO_URING_BATCH_H_
