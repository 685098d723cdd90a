#include "lmdbio/file/blocks/block_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/io/cache_probe.h"

namespace lmdbio::file {
namespace {

constexpr uint64_t kFileBytesMax = std::numeric_limits<off_t>::max();

// The kernel silently limits one announcement to its read-ahead window. This is the default window.
constexpr uint64_t kAnnounceStepBytes = 128 << 10;

// Appends the bytes [begin, end) of the file, which belong to `block`, in parts of bounded size.
void AppendParts(const ReadRequest& block, uint64_t begin, uint64_t end, bool is_direct,
                 std::vector<BlockPart>& parts) {
  for (uint64_t offset = begin; offset < end; offset += kPartBytesMax) {
    const uint64_t length_bytes = std::min(end - offset, kPartBytesMax);
    parts.push_back(
        {offset, block.destination.subspan(offset - block.offset, length_bytes), is_direct});
  }
}

Result<bool> IsSameFile(int fd, int other_fd) {
  struct stat found = {};
  struct stat other = {};
  if (::fstat(fd, &found) != 0 || ::fstat(other_fd, &other) != 0) {
    return Fail(ErrnoError(errno, "", "cannot be examined"));
  }
  return found.st_dev == other.st_dev && found.st_ino == other.st_ino;
}

}  // namespace

// Kernels before 6.1 and some file systems do not report it. Then one page is assumed, which nearly
// all file systems accept.
std::optional<DirectAlignment> FindAlignment([[maybe_unused]] int fd) {
#ifdef STATX_DIOALIGN
  struct statx found = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) == 0 &&
      (found.stx_mask & STATX_DIOALIGN) != 0) {
    if (found.stx_dio_offset_align == 0 || found.stx_dio_mem_align == 0) return std::nullopt;
    return DirectAlignment{found.stx_dio_offset_align, found.stx_dio_mem_align};
  }
#endif
  return DirectAlignment{};
}

void SplitBlock(const ReadRequest& block, const std::optional<DirectAlignment>& alignment,
                std::vector<BlockPart>& parts) {
  const uint64_t end = block.offset + block.destination.size();
  // The direct part is the largest aligned range of the file inside the block. It is used only if
  // the memory at its begin is aligned as well.
  uint64_t direct_begin = end;
  uint64_t direct_end = end;
  if (alignment) {
    const uint64_t unit = alignment->offset_bytes;
    const uint64_t begin = (block.offset + unit - 1) / unit * unit;
    const uint64_t stop = end / unit * unit;
    const uint64_t address = reinterpret_cast<uintptr_t>(block.destination.data());
    if (begin < stop && (address + begin - block.offset) % alignment->memory_bytes == 0) {
      direct_begin = begin;
      direct_end = stop;
    }
  }
  // Without a direct part the first call covers the whole block, and the others add nothing.
  AppendParts(block, block.offset, direct_begin, false, parts);
  AppendParts(block, direct_begin, direct_end, true, parts);
  AppendParts(block, direct_end, end, false, parts);
}

Result<std::unique_ptr<BlockFile>> BlockFile::Open(const std::string& data_path,
                                                   const EngineOptions& options) {
  UniqueFd fd(::open(data_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Fail(ErrnoError(errno, data_path, "cannot be opened"));
  std::unique_ptr<BlockFile> file(new BlockFile(data_path, std::move(fd), options));
  // The advice holds for this open file alone, so other programs keep their read-ahead.
  if (!options.reads_ahead) ::posix_fadvise(file->buffered_fd(), 0, 0, POSIX_FADV_RANDOM);
  if (options.cache != CachePolicy::kBuffered) LMDBIO_TRY_VOID(file->OpenDirect());
  return file;
}

Status BlockFile::OpenDirect() {
  // A second descriptor, because O_DIRECT belongs to the open file and the edges of blocks need the
  // cache.
  UniqueFd fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
  if (!fd) {
    RefuseDirect(errno);
    return {};
  }
  LMDBIO_TRY(const bool is_same,
             IsSameFile(fd.get(), buffered_fd_.get()).map_error([this](Error&& error) {
               return std::move(error).Within(path_);
             }));
  if (!is_same) {
    return Fail(ErrorCode::kStale,
                fmt::format("{}: the file was replaced while it was being opened", path_));
  }
  const std::optional<DirectAlignment> alignment = FindAlignment(fd.get());
  if (!alignment) {
    RefuseDirect(EOPNOTSUPP);
    return {};
  }
  direct_fd_ = std::move(fd);
  alignment_ = *alignment;
  is_direct_.store(true, std::memory_order_relaxed);
  // Only the edges of blocks go through the cache now, so reading ahead of them would be wasted.
  ::posix_fadvise(buffered_fd_.get(), 0, 0, POSIX_FADV_RANDOM);
  return {};
}

void BlockFile::Announce(std::span<const BlockRead> blocks) const {
  if (!is_direct()) AnnounceBlocks(buffered_fd_.get(), blocks);
}

void AnnounceBlocks(int fd, std::span<const BlockRead> blocks) {
  // Joins blocks that are adjacent in the file. A single small block needs no announcement.
  for (size_t i = 0; i < blocks.size();) {
    const uint64_t begin = blocks[i].offset;
    uint64_t end = begin + blocks[i].destination.size();
    size_t count = 1;
    while (i + count < blocks.size() && blocks[i + count].offset == end) {
      end += blocks[i + count++].destination.size();
    }
    i += count;
    if (count == 1 && end - begin <= kAnnounceStepBytes) continue;
    for (uint64_t at = begin; at < end; at += kAnnounceStepBytes) {
      ::posix_fadvise(fd, static_cast<off_t>(at),
                      static_cast<off_t>(std::min(kAnnounceStepBytes, end - at)),
                      POSIX_FADV_WILLNEED);
    }
  }
}

void BlockFile::RefuseDirect(int error_number) {
  // If reads of several threads are refused, only the first thread adds a note.
  const bool was_direct = is_direct_.exchange(false, std::memory_order_relaxed);
  if (direct_fd_ && !was_direct) return;
  if (reads_ahead_) ::posix_fadvise(buffered_fd_.get(), 0, 0, POSIX_FADV_NORMAL);
  AddNote(fmt::format("{}: O_DIRECT is refused ({}): reading through the page cache", path_,
                      std::generic_category().message(error_number)));
}

Result<bool> BlockFile::Acquire(PendingRead& part) {
  // Direct reads may have been refused since the part was split.
  if (!is_direct()) part.is_direct = false;
  part.fd = part.is_direct ? direct_fd() : buffered_fd();
  return true;
}

Status CheckOffset(const BlockRead& block, const std::string& name) {
  const uint64_t length_bytes = block.destination.size();
  if (block.offset <= kFileBytesMax && length_bytes <= kFileBytesMax - block.offset) return {};
  return Fail(ErrorCode::kCorruption,
              fmt::format("{}: {} bytes at offset {} end beyond the largest file offset", name,
                          length_bytes, block.offset));
}

Status BlockFile::Split(const BlockRead& block, std::vector<BlockPart>& parts) const {
  LMDBIO_TRY_VOID(CheckOffset(block, path_));
  if (policy() == CachePolicy::kMixed) {
    SplitByCache(block, parts);
  } else {
    SplitBlock({block.offset, block.destination},
               is_direct() ? std::optional(alignment_) : std::nullopt, parts);
  }
  return {};
}

void BlockFile::SplitByCache(const BlockRead& block, std::vector<BlockPart>& parts) const {
  std::vector<CacheRun> runs;
  CutByCache(buffered_fd_.get(), {block.offset, block.destination.size()}, runs);
  for (const CacheRun& run : runs) {
    const auto [offset, length_bytes] = run.extent;
    SplitBlock({offset, block.destination.subspan(offset - block.offset, length_bytes)},
               run.is_cached ? std::nullopt : std::optional(alignment_), parts);
  }
}

void ReadableFiles::AddNote(std::string note) {
  const std::scoped_lock lock(notes_mutex_);
  notes_.push_back(std::move(note));
}

std::vector<std::string> ReadableFiles::TakeNotes() {
  const std::scoped_lock lock(notes_mutex_);
  return std::exchange(notes_, {});
}

}  // namespace lmdbio::file
