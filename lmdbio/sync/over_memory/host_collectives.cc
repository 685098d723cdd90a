#include "lmdbio/sync/over_memory/host_collectives.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/sync/over_memory/chunk_pipeline.h"
#include "lmdbio/sync/over_memory/host_calls.h"

namespace lmdbio::sync {
namespace {

constexpr uint64_t kSlotBytes = 64 << 10;

HostSegmentShape ShapeOf(int rank_count, const HostOptions& options) {
  const auto ranks = static_cast<uint64_t>(rank_count);
  HostSegmentShape shape;
  shape.rank_count = rank_count;
  // The slot of an AllToAll begins with two sizes for each rank.
  shape.slot_bytes = std::max<uint64_t>(std::min(kSlotBytes, options.staging_bytes / 8),
                                        2 * sizeof(uint64_t) * ranks + kCacheLineBytes);
  const uint64_t slots_bytes = 2 * shape.slot_bytes;
  const uint64_t left_bytes =
      options.staging_bytes > slots_bytes ? options.staging_bytes - slots_bytes : 0;
  // Each rank has a part of whole cache lines in each buffer.
  const uint64_t buffer_bytes =
      left_bytes / HostSegment::kBuffers / kCacheLineBytes * kCacheLineBytes;
  shape.buffer_bytes = std::max(buffer_bytes, kCacheLineBytes * ranks);
  return shape;
}

// With different options the ranks would lay out the segment differently, and wait for ever.
Status CheckSameOptions(ranks::Group& group, const HostOptions& options) {
  CallDigest mine(
      {static_cast<uint64_t>(options.way), options.staging_bytes, options.registered_bytes});
  const uint64_t value = mine.value();
  LMDBIO_TRY(const auto all, group.AllGather(std::as_bytes(std::span(&value, 1))));
  for (size_t at = 0; at < all.size(); at += sizeof(value)) {
    if (std::memcmp(all.data() + at, &value, sizeof(value)) == 0) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("the options of the host collectives differ between rank {} and rank "
                            "{}: pass the same options on every rank",
                            group.rank(), at / sizeof(value)));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Collectives>> HostCollectives(ranks::Group& group, ranks::Health& health,
                                                     const HostOptions& options) {
  LMDBIO_TRY_VOID(CheckSameOptions(group, options));
  const HostSegmentShape shape = ShapeOf(group.size(), options);
  HostMemory memory;
  LMDBIO_TRY(memory.segment, group.AllocateShared(HostSegment::BytesNeeded(shape)));
  memory.registered_bytes = AlignUp(options.registered_bytes, MemoryPageBytes());
  if (memory.registered_bytes > 0) {
    auto registered =
        group.AllocateShared(memory.registered_bytes * static_cast<uint64_t>(group.size()));
    if (registered) {
      memory.registered = std::move(*registered);
    } else if (registered.error().code() != ErrorCode::kResourceExhausted) {
      return Fail(std::move(registered).error());
    } else {
      memory.registered_bytes = 0;
    }
  }
  return std::make_unique<HostCalls>(std::move(memory), shape, group.rank(), options, health);
}

HostCalls::HostCalls(HostMemory memory, const HostSegmentShape& shape, int rank,
                     const HostOptions& options, ranks::Health& health)
    : memory_(std::move(memory)),
      table_(memory_.segment->bytes(), shape, rank, options.wait, health),
      options_(options),
      sources_(static_cast<size_t>(shape.rank_count)) {}

HostCalls::~HostCalls() {
  if (table_.LeaveInPeace()) return;
  memory_.segment->Abandon();
  if (memory_.registered != nullptr) memory_.registered->Abandon();
}

MutableBytes HostCalls::RegisteredOf(int rank) const {
  if (memory_.registered == nullptr) return {};
  return memory_.registered->bytes().subspan(memory_.registered_bytes * static_cast<uint64_t>(rank),
                                             memory_.registered_bytes);
}

// Arrives at the call with the bytes in its slot, and waits for all.
Result<CallOutcome> HostCalls::Meet(const CallTag& tag, const CallHeader& header) {
  table_.Arrive(tag, header);
  LMDBIO_TRY_VOID(table_.Await(0));
  return table_.Outcome();
}

}  // namespace lmdbio::sync
