// lmdbio/file/io/uring_ring.h - reads through one io_uring, as many in flight as the ring is deep.
//
// This class is the only driver of io_uring. It submits reads, sleeps and takes completions. Its
// destructor leaves no read in flight. The caller chooses the next read and decides about retries
// (file/io/read_queue.h).
#ifndef LMDBIO_FILE_IO_URING_RING_H_
#define LMDBIO_FILE_IO_URING_RING_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/io/read_queue.h"

struct io_uring;

namespace lmdbio::file {

// The file of a read, and the indices of registered resources that the read may use.
struct RingFile {
  int fd = -1;
  int registered_file = -1;    // index among the registered files; -1: not registered
  int registered_buffer = -1;  // index of the buffer with the whole destination; -1: none
  bool passes_on = false;      // a thread of the kernel reads, without a try in the submission
};

struct RingResult {
  PendingRead read;
  ssize_t got = 0;  // the argument for ReadProgress::Take
};

// Threads: one at a time.
class UringRing {
 public:
  using TimePoint = ReadQueue::Clock::time_point;

  // A ring for `depth` reads at once, or for as many as the kernel allows. One thread may create it
  // and another use it.
  // Errors: kUnsupported  "io_uring is refused (REASON)": the kernel (before 5.6) or the container
  //                       refuses the ring or its first request
  static Result<std::unique_ptr<UringRing>> Create(uint32_t depth);

  // Waits for the reads in flight: afterwards the kernel writes to no destination.
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  uint32_t depth() const { return static_cast<uint32_t>(places_.size()); }
  // poll reports this descriptor as readable while Take has something to return.
  int fd() const;
  bool HasRoom() const { return !free_places_.empty(); }
  // Whether the prepared reads should be submitted before another one is prepared. A submission
  // may sleep (Submit), so the first ones are small.
  bool IsBatchFull() const { return !submits_async_ && prepared_count_ >= kBatchReads; }

  // Registration saves the kernel work for each read. Returns false if a container or the limit on
  // locked memory forbids it; reads then work without.
  bool RegisterFiles(std::span<const int> fds);
  bool RegisterBuffers(std::span<const iovec> buffers);

  // Puts a read into the ring. Submit or SubmitAndWait passes it to the kernel.
  // Requires: HasRoom()
  void Prepare(const PendingRead& read, const RingFile& file);

  // Passes the prepared reads to the kernel. Reads for which the kernel lacks resources stay in the
  // ring until the next call. Some file systems put the caller to sleep until they have room for
  // the read (FUSE). Later reads then go to threads of the kernel, so that no further call sleeps.
  // Errors: kIo  the ring has failed and no read is in flight; the message names no file
  Status Submit();

  // As Submit, then sleeps until a read completes, a signal arrives or the time is `until`
  // (nullopt: no limit). Kernels before 5.11 ignore the limit while reads are in the ring.
  // Requires: a read is in the ring, or there is a limit
  // Errors: as Submit
  Status SubmitAndWait(std::optional<TimePoint> until);

  // A completed read; nullopt if there is none. If the ring reports a permanent error for a read,
  // Take has tried the read again with pread.
  std::optional<RingResult> Take();

 private:
  struct RingDeleter {
    void operator()(io_uring* ring) const;
  };
  using UniqueRing = std::unique_ptr<io_uring, RingDeleter>;
  struct PendingSlot {
    PendingRead read;
    int fd = -1;
  };

  UringRing(UniqueRing ring, uint32_t depth);
  static Status Try(io_uring* ring);
  int SubmitAndSleep(std::optional<TimePoint> until);
  Status FailRing(int error_number);
  uint32_t InFlight() const;
  void AwaitInFlight();

  // The reads of one submission, as long as submissions may sleep.
  static constexpr uint32_t kBatchReads = 4;

  UniqueRing ring_;
  uint32_t prepared_count_ = 0;        // since the last submission
  bool submits_async_ = false;         // after a submission that slept
  std::vector<PendingSlot> places_;    // [depth] reads in the ring; their user data is the index
  std::vector<uint32_t> free_places_;  // free indices of places_
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_URING_RING_H_
