// lmdbio/file/io/read_progress.h - how far a read has come, and what follows each of its calls.
//
// Reads of a network file system fail for a moment, come back short or are interrupted. Every path
// that reads a data file asks this class, so that all of them try as often and word the failure the
// same. The class neither reads nor sleeps.
#ifndef LMDBIO_FILE_IO_READ_PROGRESS_H_
#define LMDBIO_FILE_IO_READ_PROGRESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"

namespace lmdbio::file {

// Failures of one read after which it is given up. Each pause is four times as long as the one
// before it: 2, 8 and 32 ms.
inline constexpr int kReadFailuresMax = 4;
inline constexpr auto kRetryPause = std::chrono::milliseconds(2);

// Whether the same read may work a moment later: EINTR, EAGAIN, EIO; ECANCELED, which io_uring
// answers when the thread that submitted the read ends.
bool MayPass(int error_number);

class ReadProgress {
 public:
  explicit ReadProgress(const ReadRequest& request = {}) : request_(request) {}

  // The offset and the memory of the next call.
  uint64_t offset() const { return request_.offset + done_bytes_; }
  MutableBytes rest() const { return request_.destination.subspan(done_bytes_); }
  bool is_done() const { return done_bytes_ == request_.destination.size(); }

  // Takes what a call for offset() and rest() came back with: as pread, but the negative number of
  // an error. Returns how long to wait before the next call; 0 also if none is needed.
  //
  // first_pause  after the first failure
  // Errors: kIo and others by errno  the read has failed for good
  //         kCorruption              the file ends inside the request
  //         No message names the file; the caller adds it (Error::Within).
  Result<std::chrono::milliseconds> Take(ssize_t got,
                                         std::chrono::milliseconds first_pause = kRetryPause);

 private:
  ReadRequest request_;
  size_t done_bytes_ = 0;
  int failure_count_ = 0;
};

// One call of pread for what `progress` lacks. Returns what Take wants.
ssize_t CallPread(int fd, const ReadProgress& progress);

// Performs one read alone: the calling thread sleeps through the pauses.
// Errors: as ReadProgress::Take
Status ReadFully(int fd, const ReadRequest& request);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_READ_PROGRESS_H_
