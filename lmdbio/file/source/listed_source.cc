#include "lmdbio/file/source/listed_source.h"

#include <memory>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/file/io/file_size.h"
#include "lmdbio/file/io/read_progress.h"
#include "lmdbio/file/io/uring_batch.h"
#include "lmdbio/file/source/file_source.h"

namespace lmdbio::file {

Result<uint64_t> ListedSource::SizeBytes() const {
  LMDBIO_TRY(const OpenFile open, OpenFile::Of(files_, file_));
  return FileSizeBytes(open.fd());
}

Result<Bytes> ListedSource::Read(Extent extent, MutableBytes scratch) const {
  LMDBIO_CHECK(scratch.size() >= extent.length_bytes);
  const MutableBytes destination = scratch.first(extent.length_bytes);
  LMDBIO_TRY(const OpenFile open, OpenFile::Of(files_, file_));
  LMDBIO_TRY_VOID(ReadFully(open.fd(), {extent.offset, destination}));
  Count(extent.length_bytes);
  return destination;
}

Status ListedSource::ReadMany(std::span<const ReadRequest> requests) const {
  // The descriptor stays open between the reads.
  LMDBIO_TRY(const OpenFile open, OpenFile::Of(files_, file_));
  if (requests.size() < kUringRequestsMin) return ByteSource::ReadMany(requests);
  Result<std::unique_ptr<UringRing>> ring = UringRing::Create(FileSource::kReadsInFlight);
  // Without io_uring the reads follow one another. The result is the same.
  if (!ring) return ByteSource::ReadMany(requests);
  const auto count = [this](const ReadRequest& request) { Count(request.destination.size()); };
  return ReadBatch(*std::move(ring), requests, {.fd = open.fd(), .on_done = count});
}

// Statistics only, so relaxed order suffices.
void ListedSource::Count(uint64_t bytes) const {
  request_count_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

ReadCounters ListedSource::counters() const {
  return {request_count_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed)};
}

JoinedSource::JoinedSource(const FileSpace& space, std::vector<const ByteSource*> sources)
    : space_(space), sources_(std::move(sources)), name_(sources_.front()->name()) {
  if (sources_.size() > 1) name_ += fmt::format(" and {} more files", sources_.size() - 1);
}

Result<Bytes> JoinedSource::Read(Extent extent, MutableBytes scratch) const {
  LMDBIO_CHECK(scratch.size() >= extent.length_bytes);
  // A single file may grow, so it is not cut.
  if (sources_.size() == 1) return sources_.front()->Read(extent, scratch);
  for (const FileSpace::FilePart& piece : space_.Cut(extent)) {
    const MutableBytes to = scratch.subspan(piece.into_extent, piece.extent.length_bytes);
    const ByteSource& source = *sources_[piece.file];
    Result<Bytes> read = source.Read(piece.extent, to);
    if (!read) return Fail(std::move(read).error().Within(source.name()));
  }
  return scratch.first(extent.length_bytes);
}

ReadCounters JoinedSource::counters() const {
  ReadCounters all;
  for (const ByteSource* source : sources_) {
    const ReadCounters one = source->counters();
    all.request_count += one.request_count;
    all.bytes += one.bytes;
  }
  return all;
}

}  // namespace lmdbio::file
