#include "lmdbio/file/source/map_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/io/cache_probe.h"
#include "lmdbio/file/io/file_size.h"
#include "lmdbio/file/map/map_advice.h"

namespace lmdbio::file {
namespace {

// More bytes would evict the data in use from the first-level cache.
constexpr uint64_t kPrefetchBytesMax = 4 << 10;

}  // namespace

Result<std::unique_ptr<MapSource>> MapSource::Open(const std::string& data_path) {
  UniqueFd fd(::open(data_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Fail(ErrnoError(errno, data_path, "cannot be opened"));
  struct stat found = {};
  if (::fstat(fd.get(), &found) != 0)
    return Fail(ErrnoError(errno, data_path, "cannot be examined"));
  LMDBIO_TRY(FileMap map, FileMap::Open(data_path, fd.get(), static_cast<uint64_t>(found.st_size)));
  std::unique_ptr<MapSource> source(new MapSource(data_path, std::move(fd), std::move(map)));
  // Without read-ahead by the kernel: callers know the pages that they need, and announce them.
  source->Advise(AccessPattern::kRandom);
  return source;
}

Result<uint64_t> MapSource::SizeBytes() const {
  LMDBIO_TRY(const uint64_t size_bytes, FileSizeBytes(fd_.get()));
  return std::min<uint64_t>(size_bytes, map().size());
}

Status MapSource::CheckNotShrunk(uint64_t expected_bytes) const {
  LMDBIO_TRY_VOID(CheckWhole());
  LMDBIO_TRY(const uint64_t size_bytes, SizeBytes());
  if (size_bytes >= expected_bytes) return {};
  return Fail(ErrorCode::kStale, fmt::format("{}: the file has shrunk from {} to {} bytes", path_,
                                             expected_bytes, size_bytes));
}

Result<Bytes> MapSource::Read(Extent extent, MutableBytes /*scratch*/) const {
  LMDBIO_TRY_VOID(CheckWhole());
  if (extent.offset > map().size() || extent.length_bytes > map().size() - extent.offset) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("the file ends at byte {}, inside a read of {} bytes at {}",
                            map().size(), extent.length_bytes, extent.offset));
  }
  // Statistics only, so relaxed order suffices. An increment may be lost between two threads.
  request_count_.store(request_count_.load(std::memory_order_relaxed) + 1,
                       std::memory_order_relaxed);
  bytes_.store(bytes_.load(std::memory_order_relaxed) + extent.length_bytes,
               std::memory_order_relaxed);
  return map().subspan(extent.offset, extent.length_bytes);
}

void MapSource::Prefetch(Extent extent) const {
  if (extent.offset >= map().size()) return;
  const Bytes lines =
      map()
          .subspan(extent.offset)
          .first(std::min({extent.length_bytes, map().size() - extent.offset, kPrefetchBytesMax}));
  for (size_t i = 0; i < lines.size(); i += kCacheLineBytes) __builtin_prefetch(&lines[i]);
}

bool MapSource::IsCached(Extent extent) const {
  return file::IsCached(fd_.get(), map().size(), extent);
}

// Announcing cached pages costs a search for each page and gains nothing.
bool MapSource::Expect(Extent extent) const {
  if (IsCached(extent)) return true;
  AdviseWillNeed(map(), extent);
  return false;
}

void MapSource::Await(Extent extent) const {
  const Result<uint64_t> size_bytes = SizeBytes();
  const uint64_t end =
      std::min<uint64_t>(extent.offset + extent.length_bytes, size_bytes ? *size_bytes : 0);
  if (extent.offset >= end) return;
  TouchByte(map(), end - 1);
}

void MapSource::Advise(AccessPattern pattern) const {
  if (map().empty()) return;
  ::madvise(const_cast<std::byte*>(map().data()), map().size(),
            pattern == AccessPattern::kSequential ? MADV_NORMAL : MADV_RANDOM);
}

ReadCounters MapSource::counters() const {
  return {request_count_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed)};
}

}  // namespace lmdbio::file
