#include "lmdbio/load/locate/block_pool.h"

#include <algorithm>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/anonymous_memory.h"

namespace lmdbio::load {
namespace {

// After this many bytes the pool judges whether its blocks are needed, and gives up below this
// share.
constexpr uint64_t kJudgedBytes = 32 << 20;
constexpr double kNeededShareMin = 0.7;

// A copy from one of the first blocks of the range begins an epoch.
constexpr uint64_t kFirstBlocks = 4;

}  // namespace

Result<std::unique_ptr<BlockPool>> BlockPool::Create(const Extent& range,
                                                     const BlockPoolOptions& options) {
  std::unique_ptr<BlockPool> pool(new BlockPool(range, options));
  LMDBIO_TRY(pool->memory_, ranks::AllocateAnonymous(options.block_bytes * options.block_count));
  return pool;
}

BlockPool::BlockPool(const Extent& range, const BlockPoolOptions& options)
    : options_(options),
      range_(range),
      states_(options.block_count, BlockState::kBad),
      first_(block_of(range.offset)),
      next_(first_),
      end_(block_of(range.offset + range.length_bytes + options.block_bytes - 1)) {}

std::optional<BlockPool::Empty> BlockPool::TakeNext() {
  const std::lock_guard lock(mutex_);
  if (IsOverLocked() || next_ == end_ || next_ - first_ == states_.size()) return std::nullopt;
  const uint64_t block = next_++;
  states_[block % states_.size()] = BlockState::kReading;
  // The first and the last block may be shorter: reads stay in the range.
  const uint64_t begin = std::max(block * options_.block_bytes, range_.offset);
  const uint64_t end =
      std::min((block + 1) * options_.block_bytes, range_.offset + range_.length_bytes);
  const uint64_t at = block % states_.size() * options_.block_bytes + begin % options_.block_bytes;
  return Empty{block, {begin, end - begin}, memory_->bytes().subspan(at, end - begin)};
}

void BlockPool::SetState(uint64_t block, BlockState state) {
  const std::lock_guard lock(mutex_);
  states_[block % states_.size()] = state;
  changed_.notify_all();
}

void BlockPool::AwaitRoom() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return IsOverLocked() || next_ == end_ || next_ - first_ < states_.size() || is_waiting_;
  });
  if (!IsOverLocked() && next_ - first_ == states_.size()) DropFirst();
}

BlockPool::Place BlockPool::FindLocked(uint64_t block) const {
  if (IsOverLocked() || block < first_ || block >= end_) return Place::kOutside;
  if (block >= next_) {
    // A leaf page far ahead is read alone: the blocks before it are needed first.
    return block < next_ + states_.size() / 2 ? Place::kComing : Place::kOutside;
  }
  switch (states_[block % states_.size()]) {
    case BlockState::kReading:
      return Place::kComing;
    case BlockState::kGood:
      return Place::kHere;
    default:
      return Place::kOutside;
  }
}

BlockPool::Place BlockPool::Find(uint64_t block) const {
  const std::lock_guard lock(mutex_);
  return FindLocked(block);
}

Bytes BlockPool::BytesOf(const Extent& file) const {
  const uint64_t at = block_of(file.offset) % states_.size() * options_.block_bytes +
                      file.offset % options_.block_bytes;
  return memory_->bytes().subspan(at, file.length_bytes);
}

bool BlockPool::has_taken_all() const {
  const std::lock_guard lock(mutex_);
  return next_ == end_;
}

void BlockPool::SetReadCounters(const file::EngineCounters& reads) {
  const std::lock_guard lock(mutex_);
  counters_.reads = reads;
}

// Blocks that have arrived stay until they are copied.
void BlockPool::End() {
  const std::lock_guard lock(mutex_);
  end_ = next_;
  has_ended_ = true;
  for (BlockState& state : states_) {
    if (state == BlockState::kReading) state = BlockState::kBad;
  }
  changed_.notify_all();
}

// Blocks are dropped only in this thread, and in AwaitRoom while this thread waits elsewhere. So
// the bytes stay while they are copied without the lock.
bool BlockPool::Copy(const Extent& file, MutableBytes to) {
  const uint64_t end = file.offset + file.length_bytes;
  {
    std::unique_lock lock(mutex_);
    if (!AwaitBlocks(lock, file)) {
      FreeIfOver(block_of(file.offset));
      if (!IsOverLocked()) counters_.missed_bytes += file.length_bytes;
      return false;
    }
    counters_.copied_bytes += file.length_bytes;
  }
  for (uint64_t at = file.offset; at < end;) {
    const uint64_t length = std::min(end, end_of(block_of(at))) - at;
    const Bytes from = BytesOf({at, length});
    std::copy(from.begin(), from.end(), to.begin() + static_cast<ptrdiff_t>(at - file.offset));
    at += length;
  }
  return true;
}

// Sleeps while one of the blocks is coming. False if one of them will not be in the pool. Blocks
// are dropped before each sleep, because the walking thread may need their room.
bool BlockPool::AwaitBlocks(std::unique_lock<std::mutex>& lock, const Extent& file) {
  const uint64_t first = block_of(file.offset);
  const uint64_t last = block_of(file.offset + file.length_bytes - 1);
  if (!Covers(file) || last - first >= states_.size() / 2) return false;
  const auto began = std::chrono::steady_clock::now();
  for (uint64_t block = first; block <= last;) {
    DropBefore(file.offset);
    const Place place = FindLocked(block);
    if (place == Place::kOutside) return false;
    if (place == Place::kHere) {
      ++block;
      continue;
    }
    changed_.wait(lock);
  }
  const std::chrono::duration<double> slept = std::chrono::steady_clock::now() - began;
  counters_.slept_s += slept.count();
  return true;
}

// After the walk has ended, a dropped place at the begin of the range is that of the next epoch: no
// block will be copied again. Nor will any if the pool has given up.
void BlockPool::FreeIfOver(uint64_t block) {
  const bool is_next_epoch = block < first_ && block <= block_of(range_.offset) + kFirstBlocks;
  if (!has_ended_ || (!is_next_epoch && !has_given_up_)) return;
  is_stopped_ = true;
  memory_.reset();
}

void BlockPool::DropFirst() {
  counters_.dropped_bytes += options_.block_bytes;
  ++first_;
  changed_.notify_all();
  if (counters_.dropped_bytes < kJudgedBytes) return;
  const auto needed = static_cast<double>(counters_.copied_bytes);
  if (needed < kNeededShareMin * static_cast<double>(counters_.dropped_bytes)) has_given_up_ = true;
}

void BlockPool::DropBefore(uint64_t offset) {
  const uint64_t kept = block_of(offset - std::min(offset, options_.slack_bytes));
  while (first_ < std::min(kept, next_) &&
         states_[first_ % states_.size()] != BlockState::kReading) {
    DropFirst();
  }
}

void BlockPool::BeginWaiting() {
  const std::lock_guard lock(mutex_);
  is_waiting_ = true;
  changed_.notify_all();
}

void BlockPool::EndWaiting() {
  const std::lock_guard lock(mutex_);
  is_waiting_ = false;
}

void BlockPool::Stop() {
  const std::lock_guard lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

bool BlockPool::is_over() const {
  const std::lock_guard lock(mutex_);
  return IsOverLocked();
}

BlockPoolCounters BlockPool::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace lmdbio::load
