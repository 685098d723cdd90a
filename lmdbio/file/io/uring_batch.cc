#include "lmdbio/file/io/uring_batch.h"

#include <optional>

#include "lmdbio/file/io/read_queue.h"

namespace lmdbio::file {

Status ReadBatch(std::unique_ptr<UringRing> ring, std::span<const ReadRequest> requests,
                 const BatchOptions& options) {
  // The owner of a read is its index among the requests.
  ReadQueue queue;
  for (size_t i = 0; i < requests.size(); ++i) {
    queue.Add({.progress = ReadProgress(requests[i]), .owner = i});
  }
  // Each turn fills the ring, sleeps until a read completes or a retry is due, and takes the
  // results. An early return destroys the ring, which waits for the reads in flight.
  for (size_t left = requests.size(); left > 0;) {
    while (ring->HasRoom()) {
      const std::optional<PendingRead> next = queue.Next();
      if (!next) break;
      ring->Prepare(*next, {.fd = options.fd});
    }
    LMDBIO_TRY_VOID(ring->SubmitAndWait(queue.next_due()));
    while (std::optional<RingResult> back = ring->Take()) {
      PendingRead& read = back->read;
      LMDBIO_TRY(const auto pause, read.progress.Take(back->got, options.retry_pause));
      if (read.progress.is_done()) {
        --left;
        options.on_done(requests[read.owner]);
      } else {
        queue.AddAgain(read, pause);
      }
    }
  }
  return {};
}

}  // namespace lmdbio::file
