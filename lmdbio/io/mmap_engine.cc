#include "lmdbio/io/mmap_engine.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "lmdbio/io/errno_error.h"
#include "lmdbio/io/file_size.h"

namespace lmdbio::io {

Result<std::unique_ptr<BlockEngine>> MmapEngine::Open(const std::string& data_path,
                                                      const EngineOptions& options) {
  LMDBIO_TRY(std::unique_ptr<BlockFile> file, BlockFile::Open(data_path, CachePolicy::kBuffered));
  LMDBIO_TRY(const uint64_t size_bytes,
             FileSizeBytes(file->buffered_fd()).map_error([&](Error&& error) {
               return std::move(error).Within(data_path);
             }));
  Bytes map;
  if (size_bytes > 0) {
    void* address =
        ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, file->buffered_fd(), /*offset=*/0);
    if (address == MAP_FAILED) return Fail(ErrnoError(errno, data_path, "cannot be mapped"));
    map = Bytes(static_cast<const std::byte*>(address), size_bytes);
  }
  if (options.cache == CachePolicy::kDirect) {
    file->AddNote(
        fmt::format("{}: a map has no direct reads: reading through the page cache", data_path));
  }
  return std::unique_ptr<BlockEngine>(new MmapEngine(std::move(file), map));
}

MmapEngine::~MmapEngine() {
  if (!map_.empty()) ::munmap(const_cast<std::byte*>(map_.data()), map_.size());
}

Status MmapEngine::Start(std::span<const BlockRead> blocks) {
  waiting_.insert(waiting_.end(), blocks.begin(), blocks.end());
  return {};
}

Result<std::span<BlockDone>> MmapEngine::WaitSome() {
  if (!waiting_.empty()) {
    const BlockRead block = waiting_.front();
    waiting_.pop_front();
    done_.Add(block.tag, Copy(block));
  }
  return done_.Take();
}

Status MmapEngine::Copy(const BlockRead& block) {
  const uint64_t length_bytes = block.destination.size();
  if (length_bytes == 0) return {};
  LMDBIO_TRY(uint64_t end, FileSizeBytes(file_->buffered_fd()).map_error([this](Error&& error) {
    return std::move(error).Within(file_->path());
  }));
  end = std::min<uint64_t>(end, map_.size());
  if (block.offset > end || length_bytes > end - block.offset) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("{}: the file ends at byte {}, inside a read of {} bytes at {}",
                            file_->path(), end, length_bytes, block.offset));
  }
  std::memcpy(block.destination.data(), map_.data() + block.offset, length_bytes);
  counters_.request_count += 1;
  counters_.bytes += length_bytes;
  return {};
}

}  // namespace lmdbio::io
