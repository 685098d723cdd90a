#include "lmdbio/load/exchange/chunk_store.h"

#include <algorithm>

namespace lmdbio::load {

ChunkStore::ChunkStore(MutableBytes memory, uint64_t chunk_bytes, size_t reader_count)
    : chunks_(memory.size() / chunk_bytes), positions_(reader_count, 0) {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    places_.push_back(memory.subspan(i * chunk_bytes, chunk_bytes));
  }
}

ChunkStore::HeldChunk* ChunkStore::Find(uint64_t number) {
  const auto found = std::find_if(chunks_.begin(), chunks_.end(), [&](const HeldChunk& chunk) {
    return chunk.is_used && chunk.number == number;
  });
  return found == chunks_.end() ? nullptr : &*found;
}

bool ChunkStore::IsDone(const HeldChunk& chunk) const {
  return std::all_of(positions_.begin(), positions_.end(),
                     [&](uint64_t position) { return position > chunk.number; });
}

// The memory of a chunk that is done comes before memory that was never touched.
ChunkStore::HeldChunk* ChunkStore::Add(uint64_t number, uint64_t length_bytes,
                                       Clock::time_point now) {
  HeldChunk* best = nullptr;
  int best_rank = 0;
  for (HeldChunk& chunk : chunks_) {
    if (chunk.is_used && (!chunk.is_ready || chunk.pin_count > 0)) continue;
    const int rank = !chunk.is_used ? 1 : IsDone(chunk) ? 0 : 2;
    const bool is_better = best == nullptr || rank < best_rank ||
                           (rank == best_rank && chunk.last_use < best->last_use);
    if (!is_better) continue;
    best = &chunk;
    best_rank = rank;
  }
  if (best == nullptr || (best_rank == 2 && now - best->last_use < kPatience)) return nullptr;
  *best = {.number = number,
           .is_used = true,
           .last_use = now,
           .memory = places_[IndexOf(*best)].first(length_bytes)};
  return best;
}

}  // namespace lmdbio::load
