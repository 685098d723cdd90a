// lmdbio/io/read_fully.h - one read, brought to its end or to an error that says why not.
//
// Reads of a network file system fail for a moment, come back short or are interrupted. Every path
// that reads a data file ends here, so that all of them try as often and word the failure the same.
#ifndef LMDBIO_IO_READ_FULLY_H_
#define LMDBIO_IO_READ_FULLY_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"

namespace lmdbio::io {

// Failures of one read after which it is given up; the pauses between them are 2, 8 and 32 ms.
inline constexpr int kReadFailuresMax = 4;

// What was done for a read.
struct ReadTally {
  uint64_t request_count = 0;  // calls of the system
  uint64_t bytes = 0;          // that those calls brought
  uint64_t retry_count = 0;    // of the calls, those that followed a failure or a short read
};

// As pread: the bytes read, 0 at the end of the file, or the negative number of an error.
using ReadCall = std::function<ssize_t(uint64_t offset, MutableBytes destination)>;

// Reads all of request.destination, whose first `done_bytes` bytes are there already. EINTR and a
// short read are continued at once; EAGAIN and EIO after a pause, kReadFailuresMax times.
//
// tally   [optional] is added to, also on failure
// Errors: kIo and others by errno  the read failed for good
//         kCorruption              the file ends inside the request
//         No message names the file; the caller adds it (Error::Within).
Status ReadFully(const ReadCall& read, const ReadRequest& request, size_t done_bytes,
                 ReadTally* tally = nullptr);

// The same with pread on `fd`.
// Errors: as above
Status ReadFully(int fd, const ReadRequest& request, size_t done_bytes, ReadTally* tally = nullptr);

}  // namespace lmdbio::io
#endif  // LMDBIO_IO_READ_FULLY_H_
