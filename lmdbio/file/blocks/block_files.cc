#include "lmdbio/file/blocks/block_files.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/io/cache_probe.h"

namespace lmdbio::file {

BlockFiles::BlockFiles(const JoinedFiles& files, const EngineOptions& options)
    : files_(*files.files),
      space_(*files.space),
      name_(fmt::format("{} and {} more files", files_.path(0), files_.file_count() - 1)),
      policy_(options.cache),
      reads_ahead_(options.reads_ahead) {}

Result<std::unique_ptr<BlockFiles>> BlockFiles::Open(const JoinedFiles& files,
                                                     EngineOptions& options) {
  // Another descriptor may be in use by a thread that locates records.
  const auto depth_max = static_cast<uint32_t>(
      std::clamp<size_t>(files.files->open_max() - 1, 1, std::numeric_limits<uint32_t>::max()));
  options.queue_depth = std::min(options.queue_depth, depth_max);
  std::unique_ptr<BlockFiles> opened(new BlockFiles(files, options));
  if (options.cache != CachePolicy::kBuffered) LMDBIO_TRY_VOID(opened->LookForDirect());
  return opened;
}

// Files of one list mostly lie in one file system. If another one needs another alignment, its
// direct reads are refused, and all reads go through the page cache.
Status BlockFiles::LookForDirect() {
  Result<OpenFile> first = OpenFile::Of(files_, 0, OpenAs::kDirect);
  if (!first && first.error().code() != ErrorCode::kInvalidArgument) {
    return Fail(std::move(first).error());
  }
  std::optional<DirectAlignment> alignment;
  if (first) alignment = FindAlignment(first->fd());
  if (!alignment) {
    RefuseDirect(0, first ? EOPNOTSUPP : first.error().error_number());
    return {};
  }
  alignment_ = *alignment;
  is_direct_.store(true, std::memory_order_relaxed);
  return {};
}

// With direct reads only the edges of blocks go through the cache.
OpenAs BlockFiles::BufferedAs() const {
  return is_direct() || !reads_ahead_ ? OpenAs::kScattered : OpenAs::kBuffered;
}

// cached_fd  of the file, to look for its bytes in the page cache; -1: not to look
void BlockFiles::SplitPart(const FileSpace::FilePart& piece, MutableBytes destination,
                           int cached_fd, std::vector<BlockPart>& parts) const {
  const size_t before = parts.size();
  const auto alignment = is_direct() ? std::optional(alignment_) : std::nullopt;
  if (cached_fd < 0) {
    SplitBlock({piece.extent.offset, destination}, alignment, parts);
  } else {
    std::vector<CacheRun> runs;
    CutByCache(cached_fd, piece.extent, runs);
    for (const CacheRun& run : runs) {
      const auto [offset, length_bytes] = run.extent;
      SplitBlock({offset, destination.subspan(offset - piece.extent.offset, length_bytes)},
                 run.is_cached ? std::nullopt : alignment, parts);
    }
  }
  for (size_t i = before; i < parts.size(); ++i) parts[i].file = piece.file;
}

Status BlockFiles::Split(const BlockRead& block, std::vector<BlockPart>& parts) const {
  LMDBIO_TRY_VOID(CheckOffset(block, name_));
  const uint64_t length_bytes = block.destination.size();
  const bool is_mixed = policy() == CachePolicy::kMixed;
  for (const FileSpace::FilePart& piece : space_.Cut({block.offset, length_bytes})) {
    const MutableBytes to = block.destination.subspan(piece.into_extent, piece.extent.length_bytes);
    if (!is_mixed) {
      SplitPart(piece, to, -1, parts);
      continue;
    }
    LMDBIO_TRY(const auto open, OpenFile::TryOf(files_, piece.file, BufferedAs()));
    SplitPart(piece, to, open ? open->fd() : -1, parts);
  }
  return {};
}

// A thread that holds descriptors must not wait for others: they could wait for it.
Result<bool> BlockFiles::AcquireAs(PendingRead& part, OpenAs as) {
  const std::lock_guard lock(mutex_);
  if (held_.empty()) {
    LMDBIO_TRY(part.fd, files_.Acquire(part.file, as));
  } else {
    LMDBIO_TRY(const std::optional<int> fd, files_.TryAcquire(part.file, as));
    if (!fd) return false;
    part.fd = *fd;
  }
  part.opened_as = as;
  held_.emplace_back(part.file, as);
  return true;
}

Result<bool> BlockFiles::Acquire(PendingRead& part) {
  if (part.is_direct && is_direct()) {
    Result<bool> acquired = AcquireAs(part, OpenAs::kDirect);
    if (acquired || acquired.error().code() != ErrorCode::kInvalidArgument) return acquired;
    RefuseDirect(part.file, acquired.error().error_number());
  }
  part.is_direct = false;
  return AcquireAs(part, BufferedAs());
}

void BlockFiles::Release(const PendingRead& part) {
  const std::lock_guard lock(mutex_);
  const auto held = std::ranges::find(held_, std::pair(part.file, part.opened_as));
  held_.erase(held);
  files_.Release(part.file, part.opened_as);
}

BlockFiles::~BlockFiles() {
  for (const auto& [file, as] : held_) files_.Release(file, as);
}

// Announcing a block opens its file, which pays only if the file then stays open until it is read.
void BlockFiles::Announce(std::span<const BlockRead> blocks) const {
  if (is_direct() || files_.file_count() >= files_.open_max()) return;
  std::vector<BlockRead> of_file;
  size_t file = 0;
  const auto announce = [&] {
    if (of_file.empty()) return;
    const auto open = OpenFile::TryOf(files_, file, BufferedAs());
    if (open && *open) AnnounceBlocks((*open)->fd(), of_file);
    of_file.clear();
  };
  for (const BlockRead& block : blocks) {
    for (const FileSpace::FilePart& piece : space_.Cut({block.offset, block.destination.size()})) {
      if (piece.file != file) announce();
      file = piece.file;
      of_file.push_back({piece.extent.offset,
                         block.destination.subspan(piece.into_extent, piece.extent.length_bytes),
                         block.tag});
    }
  }
  announce();
}

void BlockFiles::RefuseDirect(size_t file, int error_number) {
  is_direct_.store(false, std::memory_order_relaxed);
  // If reads of several threads are refused, only the first thread adds a note.
  if (has_refused_.exchange(true, std::memory_order_relaxed)) return;
  AddNote(fmt::format("{}: O_DIRECT is refused ({}): reading through the page cache", path(file),
                      std::generic_category().message(error_number)));
}

}  // namespace lmdbio::file
