// lmdbio/file/io/uring_batch.h - performs a list of reads through one io_uring.
#ifndef LMDBIO_FILE_IO_URING_BATCH_H_
#define LMDBIO_FILE_IO_URING_BATCH_H_

#include <chrono>
#include <functional>
#include <memory>
#include <span>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"
#include "lmdbio/file/io/read_progress.h"
#include "lmdbio/file/io/uring_ring.h"

namespace lmdbio::file {

// Fewer requests take less time one after the other than the setup of a ring.
inline constexpr size_t kUringRequestsMin = 4;

struct BatchOptions {
  int fd = -1;
  // Called once for each completed request, in order of completion.
  std::function<void(const ReadRequest& request)> on_done;
  std::chrono::milliseconds retry_pause = kRetryPause;
};

// Performs `requests`, as many at once as the ring is deep. ReadProgress decides about retries;
// other reads continue meanwhile. After a final failure no read starts, and the call waits for the
// reads in flight. When it returns, the kernel writes to no destination any more.
// Errors: as ReadProgress::Take, of the first request that failed; kIo if the ring itself fails
Status ReadBatch(std::unique_ptr<UringRing> ring, std::span<const ReadRequest> requests,
                 const BatchOptions& options);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_URING_BATCH_H_
