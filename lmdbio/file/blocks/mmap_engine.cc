#include "lmdbio/file/blocks/mmap_engine.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lmdbio/file/io/file_size.h"
#include "lmdbio/file/map/map_advice.h"

namespace lmdbio::file {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kRunBytes = 4 * kMiB;
// Blocks with a smaller gap between them belong to one run.
constexpr uint64_t kRunGapBytes = 64 << 10;
// The file size is checked once for so many bytes: a system call costs more than a small copy.
constexpr uint64_t kCheckEveryBytes = kMiB;

// memcpy of glibc copies a large block from its end if source and destination have the same offset
// in their pages, as nearly all blocks have. The kernel then does not read ahead: it fetches 64 KiB
// for each fault, at a quarter of the rate. Small copies go forward.
constexpr size_t kForwardBytes = 64 << 10;

void CopyForward(Bytes from, MutableBytes to) {
  for (size_t at = 0; at < from.size(); at += kForwardBytes) {
    const Bytes part = from.subspan(at, std::min(kForwardBytes, from.size() - at));
    std::memcpy(&to[at], part.data(), part.size());
  }
}

}  // namespace

Result<std::unique_ptr<BlockEngine>> MmapEngine::Open(const std::string& data_path,
                                                      const EngineOptions& options) {
  LMDBIO_TRY(std::unique_ptr<BlockFile> file, BlockFile::Open(data_path, {}));
  LMDBIO_TRY(const uint64_t size_bytes,
             FileSizeBytes(file->buffered_fd()).map_error([&](Error&& error) {
               return std::move(error).Within(data_path);
             }));
  // The size at Open bounds the map. A file that grows later is read up to this size.
  LMDBIO_TRY(FileMap map, FileMap::Open(data_path, file->buffered_fd(), size_bytes));
  if (options.cache != CachePolicy::kBuffered) {
    file->AddNote(
        fmt::format("{}: mmap has no direct reads: reading through the page cache", data_path));
  }
  return std::unique_ptr<BlockEngine>(
      new MmapEngine(std::move(file), std::move(map), options.queue_depth));
}

Status MmapEngine::Start(std::span<const BlockRead> blocks) {
  waiting_.insert(waiting_.end(), blocks.begin(), blocks.end());
  known_bytes_ = 0;  // the file may have changed since the last Start
  return {};
}

uint64_t MmapEngine::AheadBytes(uint32_t queue_depth) {
  return queue_depth > 1 ? queue_depth * kMiB : 0;
}

// Announces the next blocks to the kernel until ahead_bytes_max_ bytes are announced. Blocks that
// are close in the file are joined to runs of about kRunBytes.
void MmapEngine::Announce() {
  Extent run;
  const auto finish = [&] {
    if (run.length_bytes == 0) return;
    AdviseWillNeed(map_.bytes(), run);
    runs_.push_back(run);
    run = {};
  };
  for (; announced_count_ < waiting_.size() && announced_bytes_ < ahead_bytes_max_;
       ++announced_count_) {
    const BlockRead& block = waiting_[announced_count_];
    announced_bytes_ += block.destination.size();
    if (block.offset >= map_.bytes().size()) continue;  // Copy reports the error
    const uint64_t run_end = run.offset + run.length_bytes;
    const bool fits = run.length_bytes > 0 && run.length_bytes < kRunBytes &&
                      block.offset >= run.offset && block.offset <= run_end + kRunGapBytes;
    if (!fits) {
      finish();
      run.offset = block.offset;
    }
    const uint64_t end = block.offset + std::min<uint64_t>(block.destination.size(),
                                                           map_.bytes().size() - block.offset);
    run.length_bytes = std::max(run.length_bytes, end - run.offset);
  }
  finish();
}

// Sleeps until the last page of the next block's run is in memory. The first block of a run pays
// for the whole run; for the others the run is no longer in runs_.
void MmapEngine::AwaitRun() {
  const uint64_t offset = waiting_.front().offset;
  while (!runs_.empty() && offset >= runs_.front().offset) {
    const Extent run = runs_.front();
    runs_.pop_front();
    const uint64_t end = run.offset + run.length_bytes;
    if (offset >= end) continue;
    if (!CheckSize(run.offset, run.length_bytes)) return;
    TouchByte(map_.bytes(), end - 1);
    return;
  }
}

// One block in each call: the caller can use it before the next copy sleeps in a page fault.
Result<std::span<BlockDone>> MmapEngine::Poll() {
  if (!waiting_.empty()) {
    // Announces again when half of the announced bytes are copied, so that storage stays busy.
    if (ahead_bytes_max_ > 0) {
      if (announced_bytes_ <= ahead_bytes_max_ / 2) Announce();
      AwaitRun();
    }
    const BlockRead block = waiting_.front();
    waiting_.pop_front();
    if (announced_count_ > 0) {
      --announced_count_;
      announced_bytes_ -= block.destination.size();
    }
    done_.Add(block.tag, Copy(block));
  }
  return done_.Take();
}

// A page of the map beyond the end of the file has no bytes.
Status MmapEngine::CheckSize(uint64_t offset, uint64_t length_bytes) {
  LMDBIO_TRY(uint64_t end, FileSizeBytes(file_->buffered_fd()).map_error([this](Error&& error) {
    return std::move(error).Within(file_->name());
  }));
  end = std::min<uint64_t>(end, map_.bytes().size());
  if (offset > end || length_bytes > end - offset) {
    return Fail(ErrorCode::kCorruption,
                fmt::format("{}: the file ends at byte {}, inside a read of {} bytes at {}",
                            file_->name(), end, length_bytes, offset));
  }
  known_bytes_ = end;
  unchecked_bytes_ = 0;
  return {};
}

// Copies one block. The file size is checked first if the block is beyond the known size, or if
// kCheckEveryBytes were copied since the last check. Pages that are lost between two checks are
// found after the copy.
Status MmapEngine::Copy(const BlockRead& block) {
  const uint64_t length_bytes = block.destination.size();
  if (length_bytes == 0) return {};
  const bool is_known = block.offset <= known_bytes_ && length_bytes <= known_bytes_ - block.offset;
  if (!is_known || unchecked_bytes_ + length_bytes > kCheckEveryBytes) {
    LMDBIO_TRY_VOID(CheckSize(block.offset, length_bytes));
  }
  unchecked_bytes_ += length_bytes;
  CopyForward(map_.bytes().subspan(block.offset, length_bytes), block.destination);
  LMDBIO_TRY_VOID(map_.CheckWhole());
  counters_.request_count += 1;
  counters_.bytes += length_bytes;
  return {};
}

}  // namespace lmdbio::file
