#include "lmdbio/io/uring_batch.h"

#include <liburing.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "lmdbio/base/check.h"
#include "lmdbio/io/errno_error.h"

namespace lmdbio::io {

Result<UringBatch> UringBatch::Create(uint32_t depth) {
  LMDBIO_TRY(UniqueRing ring, CreateRing(depth));
  return UringBatch(std::move(ring), depth);
}

// Waits without the system call that has just failed: completions are posted to the ring by
// themselves.
void UringBatch::Drain(uint32_t in_flight) {
  while (in_flight > 0) {
    io_uring_cqe* cqe = nullptr;
    if (io_uring_peek_cqe(ring_.get(), &cqe) == 0) {
      io_uring_cqe_seen(ring_.get(), cqe);
      --in_flight;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

Status UringBatch::Run(int fd, std::span<const ReadRequest> requests, const Finish& finish) {
  Status status;
  size_t next = 0;
  uint32_t prepared = 0;   // in the ring, not yet handed to the kernel
  uint32_t in_flight = 0;  // with the kernel
  while (prepared + in_flight > 0 || (status && next < requests.size())) {
    for (; status && prepared + in_flight < depth_ && next < requests.size(); ++next, ++prepared) {
      const ReadRequest& request = requests[next];
      io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
      LMDBIO_CHECK(sqe != nullptr);  // fewer than depth_: the ring has room
      io_uring_prep_read(
          sqe, fd, request.destination.data(),
          static_cast<unsigned>(std::min<size_t>(request.destination.size(), 1U << 30)),
          request.offset);
      io_uring_sqe_set_data64(sqe, next);
    }
    const int rc = io_uring_submit_and_wait(ring_.get(), 1);
    if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
      Drain(in_flight);
      return Fail(ErrnoError(-rc, "", "io_uring_enter"));
    }
    if (rc > 0) {
      prepared -= static_cast<uint32_t>(rc);
      in_flight += static_cast<uint32_t>(rc);
    }
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(ring_.get(), &cqe) == 0) {
      const ReadRequest& request = requests[io_uring_cqe_get_data64(cqe)];
      const size_t done_bytes = cqe->res > 0 ? static_cast<size_t>(cqe->res) : 0;
      io_uring_cqe_seen(ring_.get(), cqe);
      --in_flight;
      Status finished = finish(request, done_bytes);
      if (!finished && status) status = std::move(finished);
    }
  }
  return status;
}

}  // namespace lmdbio::io
