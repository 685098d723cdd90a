#include "lmdbio/file/io/read_progress.h"

#include <unistd.h>

#include <cerrno>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::file {

using std::chrono::milliseconds;

// EIO is among them, because remote storage may answer again after a moment.
bool MayPass(int error_number) {
  return error_number == EINTR || error_number == EAGAIN || error_number == EIO ||
         error_number == ECANCELED;
}

Result<milliseconds> ReadProgress::Take(ssize_t got, milliseconds first_pause) {
  if (is_done()) return milliseconds(0);
  if (got > 0) {
    done_bytes_ += static_cast<size_t>(got);
    return milliseconds(0);
  }
  const size_t size_bytes = request_.destination.size();
  if (got == 0) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("the file ends at byte {}, inside a read of {} bytes at {}", offset(),
                            size_bytes, request_.offset));
  }
  // An interrupted call does not count as a failure, because a signal says nothing about storage.
  const int error_number = static_cast<int>(-got);
  if (error_number == EINTR) return milliseconds(0);
  if (!MayPass(error_number) || ++failure_count_ == kReadFailuresMax) {
    return Fail(
        ErrnoError(error_number, "",
                   fmt::format("read of {} bytes at offset {}", size_bytes, request_.offset)));
  }
  return first_pause * (1 << 2 * (failure_count_ - 1));  // each pause is four times the last
}

ssize_t CallPread(int fd, const ReadProgress& progress) {
  const MutableBytes rest = progress.rest();
  const ssize_t got = ::pread(fd, rest.data(), rest.size(), static_cast<off_t>(progress.offset()));
  return got < 0 ? -errno : got;
}

Status ReadFully(int fd, const ReadRequest& request) {
  for (ReadProgress progress(request); !progress.is_done();) {
    LMDBIO_TRY(const milliseconds pause, progress.Take(CallPread(fd, progress)));
    std::this_thread::sleep_for(pause);
  }
  return {};
}

}  // namespace lmdbio::file
