// lmdbio/file/io/uring_ring.h - reads through one io_uring, as many in flight as it is deep.
//
// The one driver of a ring: it submits, sleeps, reaps, and leaves no read in flight at its end. Its
// user decides which read comes next and what follows a read that came back (file/io/read_queue.h).
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

// The file of a read, and what of it the ring knows in advance.
struct RingFile {
  int fd = -1;
  int registered_file = -1;    // its index among the registered files; -1: none
  int registered_buffer = -1;  // of the buffer in which all of the destination lies; -1: none
};

struct RingResult {
  PendingRead read;
  ssize_t got = 0;  // as ReadProgress::Take wants it
};

// Threads: one at a time.
class UringRing {
 public:
  using TimePoint = ReadQueue::Clock::time_point;

  // A ring for `depth` reads at once, or for as many as the kernel allows. It may be made by one
  // thread and used by another.
  // Errors: kUnsupported  "io_uring is refused (REASON)": this kernel (before 5.6) or container has
  //                       none for us, or refuses the first request
  static Result<std::unique_ptr<UringRing>> Create(uint32_t depth);

  // Waits for the reads in flight: afterwards the kernel writes to no destination.
  ~UringRing();
  UringRing(const UringRing&) = delete;
  UringRing& operator=(const UringRing&) = delete;

  uint32_t depth() const { return static_cast<uint32_t>(places_.size()); }
  bool HasRoom() const { return !free_places_.empty(); }

  // Registering saves the kernel some work for each read. False where it is refused: by a
  // container, or by a limit on locked memory. Reads work without.
  bool RegisterFiles(std::span<const int> fds);
  bool RegisterBuffers(std::span<const iovec> buffers);

  // Puts a read into the ring. The kernel learns of it by Submit or SubmitAndWait.
  // Requires: HasRoom()
  void Prepare(const PendingRead& read, const RingFile& file);

  // Reads for which the kernel lacks resources stay in the ring until the next call.
  // Errors: kIo  the ring has failed; nothing is in flight any more. The message names no file.
  Status Submit();

  // The same, and sleeps until a read has come back, a signal came or it is `until` (nullopt: no
  // limit). Kernels before 5.11 disregard the limit while reads are in the ring.
  // Requires: a read is in the ring, or there is a limit
  // Errors: as Submit
  Status SubmitAndWait(std::optional<TimePoint> until);

  // A read that has come back; nullopt if there is none. A read that the ring refuses, for another
  // reason than one that may pass, has been tried with pread.
  std::optional<RingResult> Take();

 private:
  struct RingDeleter {
    void operator()(io_uring* ring) const;
  };
  using UniqueRing = std::unique_ptr<io_uring, RingDeleter>;
  struct Place {
    PendingRead read;
    int fd = -1;
  };

  UringRing(UniqueRing ring, uint32_t depth);
  static Status Try(io_uring* ring);
  int SubmitAndSleep(std::optional<TimePoint> until);
  Status FailRing(int error_number);
  uint32_t InFlight() const;
  void AwaitInFlight();

  UniqueRing ring_;
  std::vector<Place> places_;          // [depth] of the reads in the ring; user data is the index
  std::vector<uint32_t> free_places_;  // in places_
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_URING_RING_H_
