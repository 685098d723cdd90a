// lmdbio/file/io/read_progress.h - the state of one read, and the decision after each of its calls.
//
// Reads from a network file system fail temporarily, return short or are interrupted. All code that
// reads a data file uses this class, so retries and messages are the same everywhere. The class
// neither reads nor sleeps.
#ifndef LMDBIO_FILE_IO_READ_PROGRESS_H_
#define LMDBIO_FILE_IO_READ_PROGRESS_H_

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"

namespace lmdbio::file {

// A read is abandoned after this many failures. Each pause is four times as long as the last: 2, 8
// and 32 ms.
inline constexpr int kReadFailuresMax = 4;
inline constexpr auto kRetryPause = std::chrono::milliseconds(2);

// Whether the same read may succeed later: EINTR, EAGAIN, EIO and ECANCELED. io_uring returns
// ECANCELED when the thread that submitted the read ends.
bool MayPass(int error_number);

class ReadProgress {
 public:
  explicit ReadProgress(const ReadRequest& request = {}) : request_(request) {}

  // The offset and the memory of the next call.
  uint64_t offset() const { return request_.offset + done_bytes_; }
  MutableBytes rest() const { return request_.destination.subspan(done_bytes_); }
  bool is_done() const { return done_bytes_ == request_.destination.size(); }

  // Takes the result of a call for offset() and rest(). Returns the pause before the next call; 0
  // also if the read is complete.
  //
  // got          bytes read, or a negative errno
  // first_pause  the pause after the first failure
  // Errors: kIo and others by errno  the read has failed finally
  //         kCorruption              the file ends inside the request
  //         No message names the file; the caller adds it (Error::Within).
  Result<std::chrono::milliseconds> Take(ssize_t got,
                                         std::chrono::milliseconds first_pause = kRetryPause);

 private:
  ReadRequest request_;
  size_t done_bytes_ = 0;
  int failure_count_ = 0;
};

// Calls pread once for the bytes that `progress` still lacks. Returns the argument for Take.
ssize_t CallPread(int fd, const ReadProgress& progress);

// Performs one read; the calling thread sleeps during the pauses.
// Errors: as ReadProgress::Take
Status ReadFully(int fd, const ReadRequest& request);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_READ_PROGRESS_H_
