// AllReduce and ReduceScatter. One call of sync::ReduceAll reduces each element, over the sources
// in the order of the ranks. So the bits do not depend on the rank that makes this call.
//
//   one shot    every rank reduces all elements; one wait, P + 1 times the bytes are read
//   two shots   every rank reduces its part and copies the parts of the others; one wait more, and
//               3 times the bytes are read
//   in place    all values lie in registered memory: the ranks take work items, and each item is
//               reduced from the memory of all ranks and written back to all
//
// docs/collectives.md "Shared memory" counts steps, waits and bytes.
#include <algorithm>
#include <bit>
#include <functional>
#include <vector>

#include "lmdbio/base/align.h"
#include "lmdbio/base/check.h"
#include "lmdbio/sync/over_memory/chunk_pipeline.h"
#include "lmdbio/sync/over_memory/host_calls.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::sync {
namespace {

// Reduced values are copied in blocks of this size, while they are in the first-level cache.
constexpr uint64_t kBlockBytes = 16 << 10;
// The size of a work item, and the number of items for each rank.
constexpr uint64_t kPieceBytesMax = 512 << 10;
constexpr uint64_t kPiecesOfRank = 8;

uint64_t MeaningOf(CallKind kind, const Values& values, const Reduction& reduction) {
  return CallDigest({kind, static_cast<uint64_t>(values.type), static_cast<uint64_t>(reduction.op),
                     std::bit_cast<uint64_t>(reduction.scale), values.count})
      .value();
}

// One shot is faster up to this size: it moves more bytes, but has one wait less.
uint64_t OneShotBytes(int rank_count) {
  if (rank_count <= 2) return 64 << 10;
  return (64 << 10) / static_cast<uint64_t>(rank_count);
}

// The size of a work item, in whole blocks. Each rank has several items, so that a rank that
// arrives late finds less to do. kPieceBytesMax keeps the number of items below 2^kPieceBits up to
// 8 TB.
uint64_t PieceBytes(uint64_t bytes, int rank_count) {
  const uint64_t each = bytes / (kPiecesOfRank * static_cast<uint64_t>(rank_count));
  return std::clamp(AlignUp(each, kBlockBytes), kBlockBytes, kPieceBytesMax);
}

}  // namespace

// 1 + the offset of values that lie in registered memory, or 0.
uint64_t HostCalls::PlaceOf(const Values& values) const {
  const MutableBytes mine = registered();
  const uint64_t bytes = values.count * ElementBytes(values.type);
  const std::less_equal<const std::byte*> not_behind;
  if (mine.empty() || !not_behind(mine.data(), values.data)) return 0;
  if (!not_behind(values.data + bytes, mine.data() + mine.size())) return 0;
  return 1 + static_cast<uint64_t>(values.data - mine.data());
}

// The offset of the values in the registered memories, if it is the same on all ranks.
std::optional<uint64_t> HostCalls::CommonPlace() const {
  const uint64_t place = table_.HeaderOf(0).place;
  for (int other = 1; other < size(); ++other) {
    if (table_.HeaderOf(other).place != place) return std::nullopt;
  }
  if (place == 0) return std::nullopt;
  return place - 1;
}

Result<CallOutcome> HostCalls::AllReduce(const CallTag& tag, const Values& values,
                                         const Reduction& reduction) {
  LMDBIO_TRY_VOID(table_.Begin());
  CallHeader header{.digest = tag.digest, .meaning = MeaningOf(kAllReduceCall, values, reduction)};
  const uint64_t bytes = values.count * ElementBytes(values.type);
  const bool may_be_one_shot = options_.way != HostAlgorithm::kTwoShot;
  const uint64_t one_shot_bytes =
      options_.way == HostAlgorithm::kOneShot ? table_.slot_bytes() : OneShotBytes(size());
  if (may_be_one_shot && bytes <= std::min(one_shot_bytes, table_.slot_bytes())) {
    return ReduceInSlots(tag, header, values, reduction);
  }
  if (options_.way != HostAlgorithm::kOneShot) header.place = PlaceOf(values);
  // With two ranks both algorithms move as many bytes, and one shot has fewer waits.
  const bool is_one_shot = options_.way == HostAlgorithm::kOneShot ||
                           (options_.way == HostAlgorithm::kAuto && size() == 2);
  if (is_one_shot) return ReduceInChunks(tag, header, values, reduction);
  return ReduceInTwoShots(tag, header, values, reduction);
}

// In place if the values of all ranks allow it, else in chunks. A rank with registered values does
// not write its first chunk before it arrives, because in place needs none. If another rank's
// values are elsewhere, all ranks run all iterations after the arrival.
template <typename AnyChunks>
Result<CallOutcome> HostCalls::ReduceBy(const AnyChunks& chunks, const CallTag& tag,
                                        const CallHeader& header, const Values& values,
                                        const Reduction& reduction) {
  if (!tag.is_declined && header.place == 0) chunks.Do(0);
  LMDBIO_TRY(const CallOutcome outcome, Meet(tag, header));
  if (outcome == CallOutcome::kDeclined) return outcome;
  if (const std::optional<uint64_t> place = CommonPlace()) {
    LMDBIO_TRY_VOID(ReduceInPlace(values, *place, reduction));
    return outcome;
  }
  bool are_all_laid_down = true;
  for (int r = 0; r < size(); ++r) {
    are_all_laid_down = are_all_laid_down && table_.HeaderOf(r).place == 0;
  }
  if (are_all_laid_down) {
    LMDBIO_TRY_VOID(RunChunks(table_, chunks, 1, 0));
  } else {
    LMDBIO_TRY_VOID(RunChunks(table_, chunks, 0, 1));
  }
  return outcome;
}

// One shot: the values of all ranks are in their slots, and every rank reduces all of them.
Result<CallOutcome> HostCalls::ReduceInSlots(const CallTag& tag, const CallHeader& header,
                                             const Values& values, const Reduction& reduction) {
  const uint64_t bytes = values.count * ElementBytes(values.type);
  if (!tag.is_declined) CopyBytes(table_.SlotOf(rank()), values.data, bytes);
  LMDBIO_TRY(const CallOutcome outcome, Meet(tag, header));
  if (outcome == CallOutcome::kDeclined || bytes == 0) return outcome;
  for (int r = 0; r < size(); ++r) sources_[static_cast<size_t>(r)] = table_.SlotOf(r);
  sources_[static_cast<size_t>(rank())] = values.data;
  ReduceAll(values.type, reduction, values.data, sources_, values.count);
  return outcome;
}

// One shot for each chunk.
Result<CallOutcome> HostCalls::ReduceInChunks(const CallTag& tag, const CallHeader& header,
                                              const Values& values, const Reduction& reduction) {
  const uint64_t element_bytes = ElementBytes(values.type);
  const uint64_t each = table_.buffer_bytes() / element_bytes;
  const auto here = [&](uint64_t chunk) { return std::min(each, values.count - chunk * each); };
  const auto write = [&](uint64_t chunk) {
    CopyBytes(table_.BufferOf(rank(), chunk), values.data + chunk * each * element_bytes,
              here(chunk) * element_bytes);
  };
  const auto combine = [&](uint64_t chunk) {
    std::byte* const mine = values.data + chunk * each * element_bytes;
    for (int r = 0; r < size(); ++r) sources_[static_cast<size_t>(r)] = table_.BufferOf(r, chunk);
    sources_[static_cast<size_t>(rank())] = mine;
    ReduceAll(values.type, reduction, mine, sources_, here(chunk));
  };
  const auto chunks = MakeChunks<2>((values.count + each - 1) / each, write, combine, combine);
  return ReduceBy(chunks, tag, header, values, reduction);
}

// Two shots for each chunk: every rank reduces its part of the chunk for all, and copies the other
// parts.
Result<CallOutcome> HostCalls::ReduceInTwoShots(const CallTag& tag, const CallHeader& header,
                                                const Values& values, const Reduction& reduction) {
  const uint64_t element_bytes = ElementBytes(values.type);
  const uint64_t grain = kCacheLineBytes / element_bytes;
  const uint64_t each = table_.buffer_bytes() / element_bytes;
  const auto here = [&](uint64_t chunk) { return std::min(each, values.count - chunk * each); };
  const auto at = [&](uint64_t chunk) { return values.data + chunk * each * element_bytes; };

  // The values that other ranks reduce: all but the own part.
  const auto write = [&](uint64_t chunk) {
    const IndexRange mine = ShareOf(here(chunk), grain, rank(), size());
    std::byte* const buffer = table_.BufferOf(rank(), chunk);
    CopyBytes(buffer, at(chunk), mine.first * element_bytes);
    CopyBytes(buffer + mine.end * element_bytes, at(chunk) + mine.end * element_bytes,
              (here(chunk) - mine.end) * element_bytes);
  };
  // Reduces the own part into the own buffer, for the others, and copies it to its destination.
  const auto combine = [&](uint64_t chunk) {
    const IndexRange mine = ShareOf(here(chunk), grain, rank(), size());
    std::byte* const buffer = table_.BufferOf(rank(), chunk);
    const uint64_t step = kBlockBytes / element_bytes;
    for (uint64_t first = mine.first; first < mine.end; first += step) {
      const uint64_t count = std::min(step, mine.end - first);
      const uint64_t offset = first * element_bytes;
      for (int r = 0; r < size(); ++r) {
        sources_[static_cast<size_t>(r)] = table_.BufferOf(r, chunk) + offset;
      }
      sources_[static_cast<size_t>(rank())] = at(chunk) + offset;
      ReduceAll(values.type, reduction, buffer + offset, sources_, count);
      CopyBytes(at(chunk) + offset, buffer + offset, count * element_bytes);
    }
  };
  // Copies the other parts. Each rank begins with the next rank, so that not all read one buffer.
  const auto take = [&](uint64_t chunk) {
    for (int step = 1; step < size(); ++step) {
      const int other = (rank() + step) % size();
      const IndexRange theirs = ShareOf(here(chunk), grain, other, size());
      const uint64_t offset = theirs.first * element_bytes;
      CopyBytes(at(chunk) + offset, table_.BufferOf(other, chunk) + offset,
                theirs.count() * element_bytes);
    }
  };
  const auto chunks = MakeChunks<3>((values.count + each - 1) / each, write, combine, take);
  return ReduceBy(chunks, tag, header, values, reduction);
}

// Takes work items until none is left. With more ranks than cores, the kernel may not run a rank
// for some milliseconds; the ranks that run then do its share.
Status HostCalls::ReduceInPlace(const Values& values, uint64_t place, const Reduction& reduction) {
  const uint64_t bytes = values.count * ElementBytes(values.type);
  const uint64_t piece_bytes = PieceBytes(bytes, size());
  const uint64_t piece_count = (bytes + piece_bytes - 1) / piece_bytes;
  if (piece_count == 0) return {};
  while (const std::optional<uint64_t> piece = table_.TakePiece(piece_count)) {
    const uint64_t begin = *piece * piece_bytes;
    const uint64_t end = std::min(begin + piece_bytes, bytes);
    for (uint64_t at = begin; at < end; at += kBlockBytes) {
      ReduceBlock(values.type, reduction, place + at, std::min(kBlockBytes, end - at));
    }
    table_.FinishPiece(piece_count, 1);
    LMDBIO_TRY_VOID(table_.KeepAlive());
  }
  return table_.Await(1);
}

// Reduces one block from the memory of all ranks, and copies the result into the memory of all. No
// other rank touches the block, because it belongs to one work item.
void HostCalls::ReduceBlock(DataType type, const Reduction& reduction, uint64_t offset,
                            uint64_t bytes) {
  for (int r = 0; r < size(); ++r) {
    sources_[static_cast<size_t>(r)] = RegisteredOf(r).data() + offset;
  }
  std::byte* const result = registered().data() + offset;
  ReduceAll(type, reduction, result, sources_, bytes / ElementBytes(type));
  for (int i = 1; i < size(); ++i) {
    CopyBytes(RegisteredOf((rank() + i) % size()).data() + offset, result, bytes);
  }
}

Result<CallOutcome> HostCalls::ReduceScatter(const CallTag& tag, const Values& input,
                                             std::byte* output, std::span<const uint64_t> counts,
                                             const Reduction& reduction) {
  LMDBIO_CHECK(counts.size() == static_cast<size_t>(size()));
  LMDBIO_TRY_VOID(table_.Begin());
  CallDigest meaning({kReduceScatterCall, MeaningOf(kReduceScatterCall, input, reduction)});
  meaning.Add(counts);
  const CallHeader header{.digest = tag.digest, .meaning = meaning.value()};
  uint64_t first = 0;
  for (int r = 0; r < rank(); ++r) first += counts[static_cast<size_t>(r)];
  const uint64_t count = counts[static_cast<size_t>(rank())];
  const uint64_t bytes = input.count * ElementBytes(input.type);
  if (bytes <= table_.slot_bytes()) {
    return ScatterInSlots(tag, header, input, output, first, count, reduction);
  }
  // If the output overlaps values that are still to be read, it is written at the end.
  const uint64_t output_bytes = count * ElementBytes(input.type);
  const std::byte* const own_part = input.data + first * ElementBytes(input.type);
  const std::less<const std::byte*> before;
  const bool overlaps = output != own_part && before(output, input.data + bytes) &&
                        before(input.data, output + output_bytes);
  if (!overlaps) return ScatterChunks(tag, header, input, output, counts, reduction);
  std::vector<std::byte> apart(output_bytes);
  LMDBIO_TRY(const CallOutcome outcome,
             ScatterChunks(tag, header, input, apart.data(), counts, reduction));
  if (outcome == CallOutcome::kDone) CopyBytes(output, apart.data(), output_bytes);
  return outcome;
}

Result<CallOutcome> HostCalls::ScatterInSlots(const CallTag& tag, const CallHeader& header,
                                              const Values& input, std::byte* output,
                                              uint64_t first, uint64_t count,
                                              const Reduction& reduction) {
  const uint64_t element_bytes = ElementBytes(input.type);
  if (!tag.is_declined) CopyBytes(table_.SlotOf(rank()), input.data, input.count * element_bytes);
  LMDBIO_TRY(const CallOutcome outcome, Meet(tag, header));
  if (outcome == CallOutcome::kDeclined || count == 0) return outcome;
  for (int r = 0; r < size(); ++r) {
    sources_[static_cast<size_t>(r)] = table_.SlotOf(r) + first * element_bytes;
  }
  ReduceAll(input.type, reduction, output, sources_, count);
  return outcome;
}

// The buffer of each chunk has a piece for every rank. Parts may have different sizes; the chunk
// count follows from the largest.
Result<CallOutcome> HostCalls::ScatterChunks(const CallTag& tag, const CallHeader& header,
                                             const Values& input, std::byte* output,
                                             std::span<const uint64_t> counts,
                                             const Reduction& reduction) {
  const uint64_t element_bytes = ElementBytes(input.type);
  const uint64_t piece_bytes =
      table_.buffer_bytes() / static_cast<uint64_t>(size()) / kCacheLineBytes * kCacheLineBytes;
  const uint64_t each = piece_bytes / element_bytes;
  const auto here = [&](int r, uint64_t chunk) {
    const uint64_t count = counts[static_cast<size_t>(r)];
    return chunk * each < count ? std::min(each, count - chunk * each) : 0;
  };
  const auto write = [&](uint64_t chunk) {
    const std::byte* part = input.data;
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) {
        CopyBytes(table_.BufferOf(rank(), chunk) + static_cast<uint64_t>(r) * piece_bytes,
                  part + chunk * each * element_bytes, here(r, chunk) * element_bytes);
      }
      part += counts[static_cast<size_t>(r)] * element_bytes;
    }
  };
  uint64_t first = 0;
  for (int r = 0; r < rank(); ++r) first += counts[static_cast<size_t>(r)];
  const auto combine = [&](uint64_t chunk) {
    if (here(rank(), chunk) == 0) return;
    for (int r = 0; r < size(); ++r) {
      sources_[static_cast<size_t>(r)] =
          table_.BufferOf(r, chunk) + static_cast<uint64_t>(rank()) * piece_bytes;
    }
    sources_[static_cast<size_t>(rank())] = input.data + (first + chunk * each) * element_bytes;
    ReduceAll(input.type, reduction, output + chunk * each * element_bytes, sources_,
              here(rank(), chunk));
  };
  const uint64_t count_max = *std::max_element(counts.begin(), counts.end());
  const uint64_t chunk_count = std::max<uint64_t>(1, (count_max + each - 1) / each);
  return RunCall(table_, tag, header, MakeChunks<2>(chunk_count, write, combine, combine));
}

}  // namespace lmdbio::sync
