#include "lmdbio/io/file_source.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/io/errno_error.h"
#include "lmdbio/io/uring_batch.h"

namespace lmdbio::io {
namespace {

constexpr int kTriesMax = 4;
constexpr auto kFirstBackoff = std::chrono::milliseconds(2);

// Fewer reads than this are not worth setting up a ring.
constexpr size_t kUringRequestsMin = 4;

bool IsTransient(int error_number) {
  return error_number == EINTR || error_number == EAGAIN || error_number == EIO;
}

// Reads all of `destination`, whose first `done` bytes are there already.
Status ReadFully(int fd, uint64_t offset, MutableBytes destination, size_t done) {
  auto backoff = kFirstBackoff;
  for (int failures = 0; done < destination.size();) {
    const ssize_t got = ::pread(fd, destination.data() + done, destination.size() - done,
                                static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<size_t>(got);
      continue;
    }
    if (got == 0) {
      return Fail(ErrorCode::kCorruption,
                  fmt::format("the file ends at byte {}, inside a read of {} bytes at {}",
                              offset + done, destination.size(), offset));
    }
    const int error_number = errno;
    if (error_number == EINTR) continue;
    if (!IsTransient(error_number) || ++failures == kTriesMax) {
      return Fail(
          ErrnoError(error_number, "",
                     fmt::format("read of {} bytes at offset {}", destination.size(), offset)));
    }
    std::this_thread::sleep_for(backoff);
    backoff *= 4;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<FileSource>> FileSource::Open(const std::string& data_path) {
  UniqueFd fd(::open(data_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Fail(ErrnoError(errno, data_path, "cannot be opened"));
  return std::unique_ptr<FileSource>(new FileSource(data_path, std::move(fd)));
}

Result<uint64_t> FileSource::SizeBytes() const {
  struct stat found = {};
  if (::fstat(fd_.get(), &found) != 0) return Fail(ErrnoError(errno, "", "cannot be examined"));
  if (!S_ISBLK(found.st_mode)) return static_cast<uint64_t>(found.st_size);
  uint64_t device_bytes = 0;
  if (::ioctl(fd_.get(), BLKGETSIZE64, &device_bytes) != 0) {
    return Fail(ErrnoError(errno, "", "cannot be examined"));
  }
  return device_bytes;
}

Result<Bytes> FileSource::Read(Extent extent, MutableBytes scratch) const {
  LMDBIO_CHECK(scratch.size() >= extent.length_bytes);
  const MutableBytes destination = scratch.first(extent.length_bytes);
  LMDBIO_TRY_VOID(ReadFully(fd_.get(), extent.offset, destination, 0));
  Count(extent.length_bytes);
  return destination;
}

Status FileSource::ReadMany(std::span<const ReadRequest> requests) const {
  if (requests.size() < kUringRequestsMin) return ByteSource::ReadMany(requests);
  Result<UringBatch> ring = UringBatch::Create(kReadsInFlight);
  if (!ring) return ByteSource::ReadMany(requests);
  // What the ring did not read whole, for whatever reason, goes through the path that retries and
  // words the error.
  const auto finish = [&](const ReadRequest& request, size_t done_bytes) -> Status {
    LMDBIO_TRY_VOID(ReadFully(fd_.get(), request.offset, request.destination, done_bytes));
    Count(request.destination.size());
    return {};
  };
  return ring->Run(fd_.get(), requests, finish);
}

void FileSource::Advise(AccessPattern pattern) const {
  ::posix_fadvise(fd_.get(), 0, 0,
                  pattern == AccessPattern::kRandom ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
}

// Statistics only: nothing is ordered by these.
void FileSource::Count(uint64_t bytes) const {
  request_count_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

ReadCounters FileSource::counters() const {
  return {request_count_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed)};
}

}  // namespace lmdbio::io
