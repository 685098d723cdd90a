#include "lmdbio/file/blocks/block_queue.h"

#include <cerrno>
#include <utility>

namespace lmdbio::file {

using std::chrono::milliseconds;

void BlockQueue::Add(std::span<const BlockRead> blocks) {
  outstanding_ += blocks.size();
  for (const BlockRead& block : blocks) AddOne(block);
}

void BlockQueue::AddOne(const BlockRead& block) {
  split_.clear();
  Status status = files_.Split(block, split_);
  if (!status || split_.empty()) {
    done_.Add(block.tag, std::move(status));
    return;
  }
  // An entry of blocks_ is used again after its block is done, so indices stay valid.
  if (free_blocks_.empty()) {
    free_blocks_.push_back(blocks_.size());
    blocks_.emplace_back();
  }
  const size_t place = free_blocks_.back();
  free_blocks_.pop_back();
  blocks_[place] = {block.tag, split_.size(), {}};
  for (const BlockPart& part : split_) {
    parts_.Add({.progress = ReadProgress({part.offset, part.destination}),
                .owner = place,
                .file = part.file,
                .is_direct = part.is_direct});
  }
}

std::optional<PendingRead> BlockQueue::Next() {
  lacks_descriptor_ = false;
  while (std::optional<PendingRead> part = parts_.Next()) {
    Result<bool> acquired = files_.Acquire(*part);
    if (!acquired) {
      EndPart(*part, Fail(std::move(acquired).error()));
    } else if (*acquired) {
      return part;
    } else {
      parts_.AddAgain(*part, milliseconds(0));
      lacks_descriptor_ = true;
      return std::nullopt;
    }
  }
  return std::nullopt;
}

// Every call counts, also those that fail. So the counters show the requests that reach the
// storage.
void BlockQueue::Count(const PendingRead& part, ssize_t got) {
  const uint64_t bytes = got > 0 ? static_cast<uint64_t>(got) : 0;
  counters_.request_count += 1;
  counters_.bytes += bytes;
  if (part.is_direct) counters_.direct_bytes += bytes;
  if (part.is_retry) counters_.retry_count += 1;
}

// The pause before the part is read again. The first answer to a direct read is never final: a
// failed or short one is continued through the page cache at once.
Result<milliseconds> BlockQueue::Judge(PendingRead& part, ssize_t got) {
  if (part.is_direct) {
    if (got == -EINVAL) files_.RefuseDirect(part.file, EINVAL);
    part.is_direct = false;
    if (got <= 0) return milliseconds(0);
  }
  return part.progress.Take(got, retry_pause_);
}

void BlockQueue::Take(PendingRead part, ssize_t got) {
  Count(part, got);
  files_.Release(part);
  Result<milliseconds> pause = Judge(part, got);
  // A short read is no failure: its rest is read again at once.
  if (pause && !part.progress.is_done()) {
    part.is_retry = true;
    parts_.AddAgain(part, *pause);
    return;
  }
  EndPart(part, pause ? Status() : Fail(std::move(pause).error().Within(files_.path(part.file))));
}

// The block keeps the error of its first failed part, and is done with its last part.
void BlockQueue::EndPart(const PendingRead& part, Status status) {
  Block& block = blocks_[part.owner];
  if (!status && block.status) block.status = std::move(status);
  if (--block.parts_left > 0) return;
  done_.Add(block.tag, std::move(block.status));
  free_blocks_.push_back(part.owner);
}

// Blocks count as outstanding until they are handed back, so the caller never misses one.
std::span<BlockDone> BlockQueue::TakeDone() {
  const std::span<BlockDone> done = done_.Take();
  outstanding_ -= done.size();
  return done;
}

}  // namespace lmdbio::file
