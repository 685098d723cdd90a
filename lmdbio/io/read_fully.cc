#include "lmdbio/io/read_fully.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/io/errno_error.h"

namespace lmdbio::io {
namespace {

constexpr auto kFirstBackoff = std::chrono::milliseconds(2);

bool IsTransient(int error_number) { return error_number == EAGAIN || error_number == EIO; }

}  // namespace

Status ReadFully(const ReadCall& read, const ReadRequest& request, size_t done_bytes,
                 ReadTally* tally) {
  ReadTally unwanted;
  ReadTally& counted = tally != nullptr ? *tally : unwanted;
  const auto [offset, destination] = request;
  auto backoff = kFirstBackoff;
  bool is_first = true;
  for (int failures = 0; done_bytes < destination.size(); is_first = false) {
    counted.request_count += 1;
    counted.retry_count += is_first ? 0 : 1;
    const ssize_t got = read(offset + done_bytes, destination.subspan(done_bytes));
    if (got > 0) {
      done_bytes += static_cast<size_t>(got);
      counted.bytes += static_cast<uint64_t>(got);
      continue;
    }
    if (got == 0) {
      return Fail(ErrorCode::kCorruption,
                  fmt::format("the file ends at byte {}, inside a read of {} bytes at {}",
                              offset + done_bytes, destination.size(), offset));
    }
    const int error_number = static_cast<int>(-got);
    if (error_number == EINTR) continue;
    if (!IsTransient(error_number) || ++failures == kReadFailuresMax) {
      return Fail(
          ErrnoError(error_number, "",
                     fmt::format("read of {} bytes at offset {}", destination.size(), offset)));
    }
    std::this_thread::sleep_for(backoff);
    backoff *= 4;
  }
  return {};
}

Status ReadFully(int fd, const ReadRequest& request, size_t done_bytes, ReadTally* tally) {
  const auto read = [fd](uint64_t offset, MutableBytes destination) -> ssize_t {
    const ssize_t got =
        ::pread(fd, destination.data(), destination.size(), static_cast<off_t>(offset));
    return got < 0 ? -errno : got;
  };
  return ReadFully(read, request, done_bytes, tally);
}

}  // namespace lmdbio::io
