#include "lmdbio/file/source/file_source.h"

#include <fcntl.h>

#include <cerrno>

#include "lmdbio/base/check.h"
#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/io/file_size.h"
#include "lmdbio/file/io/read_progress.h"
#include "lmdbio/file/io/uring_batch.h"

namespace lmdbio::file {

Result<std::unique_ptr<FileSource>> FileSource::Open(const std::string& data_path) {
  UniqueFd fd(::open(data_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Fail(ErrnoError(errno, data_path, "cannot be opened"));
  return std::unique_ptr<FileSource>(new FileSource(data_path, std::move(fd)));
}

Result<uint64_t> FileSource::SizeBytes() const { return FileSizeBytes(fd_.get()); }

Result<Bytes> FileSource::Read(Extent extent, MutableBytes scratch) const {
  LMDBIO_CHECK(scratch.size() >= extent.length_bytes);
  const MutableBytes destination = scratch.first(extent.length_bytes);
  LMDBIO_TRY_VOID(ReadFully(fd_.get(), {extent.offset, destination}));
  Count(extent.length_bytes);
  return destination;
}

Status FileSource::ReadMany(std::span<const ReadRequest> requests) const {
  if (requests.size() < kUringRequestsMin) return ByteSource::ReadMany(requests);
  Result<std::unique_ptr<UringRing>> ring = UringRing::Create(kReadsInFlight);
  // Without io_uring the reads follow one another. The result is the same.
  if (!ring) return ByteSource::ReadMany(requests);
  const auto count = [this](const ReadRequest& request) { Count(request.destination.size()); };
  return ReadBatch(*std::move(ring), requests, {.fd = fd_.get(), .on_done = count});
}

void FileSource::Advise(AccessPattern pattern) const {
  ::posix_fadvise(fd_.get(), 0, 0,
                  pattern == AccessPattern::kRandom ? POSIX_FADV_RANDOM : POSIX_FADV_SEQUENTIAL);
}

// Statistics only, so relaxed order suffices.
void FileSource::Count(uint64_t bytes) const {
  request_count_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

ReadCounters FileSource::counters() const {
  return {request_count_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed)};
}

}  // namespace lmdbio::file
