// lmdbio/sync/over_memory/chunk_pipeline.h - calls whose bytes go through the buffers of a host
// segment, chunk after chunk.
//
// The phases of different chunks overlap. In iteration i a rank combines chunk i - 1, takes the
// results of chunk i - 2, and writes chunk i, each in another one of three buffers:
//
//   iteration    0        1        2        3        4
//   chunk 0    write   combine   take
//   chunk 1            write    combine   take
//   chunk 2                     write    combine   take
//
// Before iteration i a rank waits until all ranks have done iteration i - 1. This one wait serves
// all three phases: chunk i - 1 is written by all, chunk i - 2 is combined by all, and the buffer
// that chunk i gets held chunk i - 3, which all have taken. So no rank waits for a free buffer.
//
// Only for the .cc files of this folder.
#ifndef LMDBIO_SYNC_OVER_MEMORY_CHUNK_PIPELINE_H_
#define LMDBIO_SYNC_OVER_MEMORY_CHUNK_PIPELINE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <span>

#include "lmdbio/sync/over_memory/host_segment.h"

namespace lmdbio::sync {

// Order-sensitive 64-bit hash of numbers. Collisions are negligible. The mixing step is that of
// SplitMix64 (G. Steele et al., OOPSLA 2014).
class CallDigest {
 public:
  explicit CallDigest(std::initializer_list<uint64_t> numbers) {
    for (const uint64_t number : numbers) Add(number);
  }
  void Add(uint64_t number) {
    uint64_t z = state_ + 0x9E3779B97F4A7C15U + number;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    state_ = z ^ (z >> 31);
  }
  void Add(std::span<const uint64_t> numbers) {
    Add(numbers.size());
    for (const uint64_t number : numbers) Add(number);
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0;
};

// Copies between places that may be the same. The pointers may be null if there is nothing to copy.
inline void CopyBytes(std::byte* to, const std::byte* from, uint64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

// The kinds of calls, for CallDigest.
enum CallKind : uint64_t {
  kAllReduceCall = 1,
  kReduceScatterCall,
  kAllGatherCall,
  kBroadcastCall,
  kAllToAllCall,
  kBarrierCall,
};

// The phases of a call, for each chunk.
//   write    void(uint64_t chunk): copies into the own buffer the bytes that other ranks need
//   combine  void(uint64_t chunk): after all ranks have written: reduces or copies its part
//   take     void(uint64_t chunk): after all ranks have combined: copies the parts of the others
// kDepth  the number of phases; with 2 there is no take
template <uint32_t kDepth, typename Write, typename Combine, typename Take>
struct ChunkPipeline {
  uint64_t count = 0;
  Write write;
  Combine combine;
  Take take;

  static constexpr uint32_t kLag = HostSegment::kLag;
  uint64_t IterationCount() const { return count + uint64_t{kDepth - 1} * kLag; }

  // One iteration. The combination comes first, because its results are needed soonest.
  void Do(uint64_t iteration) const {
    const auto is_chunk = [&](uint64_t lag) { return iteration >= lag && iteration - lag < count; };
    if (is_chunk(kLag)) combine(iteration - kLag);
    if constexpr (kDepth == 3) {
      constexpr uint64_t kTakeLag = uint64_t{2} * kLag;
      if (is_chunk(kTakeLag)) take(iteration - kTakeLag);
    }
    if (is_chunk(0)) write(iteration);
  }
};

template <uint32_t kDepth, typename Write, typename Combine, typename Take>
ChunkPipeline<kDepth, Write, Combine, Take> MakeChunks(uint64_t count, Write write, Combine combine,
                                                       Take take) {
  return {count, write, combine, take};
}

// Runs the iterations from `first_iteration` on. Iteration i is step `first_step` + i of the call.
// The last iteration is not published, because no rank waits for it in this call; a rank that
// arrives at the next call has done it.
// Errors: as HostSegment::Await
template <typename AnyChunks>
Status RunChunks(HostSegment& table, const AnyChunks& chunks, uint64_t first_iteration,
                 uint32_t first_step) {
  const uint64_t end = chunks.IterationCount();
  for (uint64_t i = first_iteration; i < end; ++i) {
    if (i >= HostSegment::kLag) {
      LMDBIO_TRY_VOID(table.Await(static_cast<uint32_t>(first_step + i - HostSegment::kLag)));
    }
    chunks.Do(i);
    if (i + 1 < end) table.Publish(static_cast<uint32_t>(first_step + i));
    if (i % 64 == 63) LMDBIO_TRY_VOID(table.KeepAlive());
  }
  table.Finish(chunks.count);
  return {};
}

// The whole call. Each rank writes the first chunk before it arrives. So the comparison of the
// headers takes no round of its own.
// Errors: as HostSegment::Await
template <typename AnyChunks>
Result<CallOutcome> RunCall(HostSegment& table, const CallTag& tag, const CallHeader& header,
                            const AnyChunks& chunks) {
  if (!tag.is_declined) chunks.Do(0);
  table.Arrive(tag, header);
  LMDBIO_TRY_VOID(table.Await(0));
  if (table.Outcome() == CallOutcome::kDeclined) return CallOutcome::kDeclined;
  LMDBIO_TRY_VOID(RunChunks(table, chunks, 1, 0));
  return CallOutcome::kDone;
}

// The part of `rank` when `rank_count` ranks divide `count` elements in multiples of `grain`. The
// last parts may be shorter or empty.
struct IndexRange {
  uint64_t first = 0;
  uint64_t end = 0;
  uint64_t count() const { return end - first; }
};
inline IndexRange ShareOf(uint64_t count, uint64_t grain, int rank, int rank_count) {
  const auto ranks = static_cast<uint64_t>(rank_count);
  const uint64_t each = ((count + ranks - 1) / ranks + grain - 1) / grain * grain;
  const auto at = [&](uint64_t index) { return index * each < count ? index * each : count; };
  return {at(static_cast<uint64_t>(rank)), at(static_cast<uint64_t>(rank) + 1)};
}

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_MEMORY_CHUNK_PIPELINE_H_
