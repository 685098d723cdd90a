#include "lmdbio/load/locate/walked_source.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "lmdbio/base/align.h"

namespace lmdbio::load {
namespace {

// A smaller database is walked within a few milliseconds.
constexpr uint64_t kWorthItBytes = 8 << 20;

// The range may have this share of bytes that the stream does not need.
constexpr double kExtraShareMax = 0.05;

// A leaf page is in order if it lies behind the one before it, or this close before it: a leaf page
// that is written again takes a free page nearby.
constexpr uint64_t kOrderSlackBytes = 8 << 20;
constexpr double kInOrderShareMin = 0.95;

// With fewer leaf pages than one for this many bytes, single reads of them cost little.
constexpr uint64_t kBytesOfLeafMax = 4 << 20;

// The longest sleep for a read before the thread looks whether the pool is over.
constexpr auto kCheckPeriod = std::chrono::milliseconds(50);

bool IsInOrder(std::span<const PageNo> leaves, uint64_t page_bytes) {
  const uint64_t slack_pages = kOrderSlackBytes / page_bytes;
  size_t in_order = 0;
  uint64_t furthest = 0;
  for (const PageNo leaf : leaves) {
    if (leaf.value + slack_pages >= furthest) ++in_order;
    furthest = std::max(furthest, leaf.value);
  }
  return static_cast<double>(in_order) >= kInOrderShareMin * static_cast<double>(leaves.size());
}

}  // namespace

std::optional<Extent> JointRange(const file::Database& database, std::span<const PageNo> leaves,
                                 uint64_t stream_bytes) {
  const file::DatabaseRecord& record = database.record();
  const file::Snapshot& snapshot = database.pages().snapshot();
  const uint64_t page_bytes = snapshot.page_format.page_size_bytes();
  const uint64_t needed_bytes = (record.leaf_pages + record.overflow_pages) * page_bytes;
  if (leaves.empty() || needed_bytes < kWorthItBytes) return std::nullopt;
  if (needed_bytes / leaves.size() > kBytesOfLeafMax) return std::nullopt;
  const uint64_t begin = std::ranges::min(leaves).value * page_bytes;
  const uint64_t length = snapshot.page_count() * page_bytes - begin;
  const auto extra = static_cast<double>(length) - static_cast<double>(needed_bytes);
  if (extra > kExtraShareMax * static_cast<double>(needed_bytes)) return std::nullopt;
  if (!IsInOrder(leaves, page_bytes)) return std::nullopt;
  // Whole pages: direct reads need them.
  const uint64_t wanted = AlignUp(std::min(length, stream_bytes), page_bytes);
  return Extent{begin, std::min(length, wanted)};
}

// The engine ends before the pool says so: no buffer is written afterwards.
WalkedSource::~WalkedSource() {
  engine_.reset();
  pool_.End();
}

Result<Bytes> WalkedSource::Read(Extent extent, MutableBytes scratch) const {
  const MutableBytes destination = scratch.first(extent.length_bytes);
  if (Serve({extent.offset, destination})) return destination;
  return file_.Read(extent, scratch);
}

Status WalkedSource::ReadMany(std::span<const ReadRequest> requests) const {
  std::vector<ReadRequest> others;
  for (const ReadRequest& request : requests) {
    if (!Serve(request)) others.push_back(request);
  }
  return others.empty() ? Status() : file_.ReadMany(others);
}

// Copies the bytes from the pool. False if a part of them will not be there.
bool WalkedSource::Serve(const ReadRequest& request) const {
  if (!pool_.Covers({request.offset, request.destination.size()})) return false;
  const uint64_t end = request.offset + request.destination.size();
  for (uint64_t at = request.offset; at < end;) {
    const uint64_t block = pool_.block_of(at);
    if (!Await(block)) return false;
    const uint64_t length = std::min(end, pool_.end_of(block)) - at;
    const Bytes from = pool_.BytesOf({at, length});
    std::copy(from.begin(), from.end(),
              request.destination.begin() + static_cast<ptrdiff_t>(at - request.offset));
    at += length;
  }
  return true;
}

bool WalkedSource::Await(uint64_t block) const {
  BlockPool::Place place = pool_.Find(block);
  while (place == BlockPool::Place::kComing && Advance()) place = pool_.Find(block);
  return place == BlockPool::Place::kHere;
}

// Keeps the queue of the storage full, and takes the blocks that have arrived. Sleeps for a read or
// for room. False if no block will arrive any more.
bool WalkedSource::Advance() const {
  std::vector<file::BlockRead> reads;
  while (const auto next = pool_.TakeNext()) {
    reads.push_back({next->file.offset, next->memory, next->block});
  }
  // A failed engine reads nothing more, and its blocks never arrive: the walk continues without it.
  const Status started = engine_->Start(reads);
  if (!started) {
    pool_.Stop();
    return false;
  }
  if (engine_->outstanding() == 0) {
    if (pool_.has_taken_all() || pool_.is_over()) return false;
    pool_.AwaitRoom();
    return true;
  }
  const auto done = engine_->WaitSome(kCheckPeriod);
  if (!done) {
    pool_.Stop();
    return false;
  }
  pool_.SetReadCounters(engine_->counters());
  for (const file::BlockDone& block : *done) {
    block.status ? pool_.SetArrived(block.tag) : pool_.SetFailed(block.tag);
  }
  return !pool_.is_over();
}

void WalkedSource::ReadRest() {
  while (Advance()) {
  }
}

}  // namespace lmdbio::load
