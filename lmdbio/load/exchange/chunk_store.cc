#include "lmdbio/load/exchange/chunk_store.h"

#include <algorithm>

namespace lmdbio::load {

ChunkStore::ChunkStore(MutableBytes memory, uint64_t chunk_bytes, uint64_t chunk_count,
                       size_t reader_count)
    : chunk_count_(chunk_count), chunks_(memory.size() / chunk_bytes), positions_(reader_count, 0) {
  for (size_t i = 0; i < chunks_.size(); ++i) {
    chunk_memory_.push_back(memory.subspan(i * chunk_bytes, chunk_bytes));
  }
}

// A reader that wants a much earlier chunk than before has begun another epoch. Small steps back
// are normal: a leaf page may lie before the values of its records.
uint64_t ChunkStore::NoteWant(size_t reader, uint64_t number) {
  const uint64_t last = positions_[reader];
  uint64_t lap = last / chunk_count_;
  if (number + chunk_count_ / 2 < last % chunk_count_) ++lap;
  return positions_[reader] = lap * chunk_count_ + number;
}

ChunkStore::HeldChunk* ChunkStore::Find(uint64_t number) {
  const auto found = std::find_if(chunks_.begin(), chunks_.end(), [&](const HeldChunk& chunk) {
    return chunk.is_used && chunk.number == number;
  });
  return found == chunks_.end() ? nullptr : &*found;
}

bool ChunkStore::IsDone(const HeldChunk& chunk) const {
  return std::all_of(positions_.begin(), positions_.end(),
                     [&](uint64_t position) { return position > chunk.position; });
}

// The memory of a chunk that is done comes before memory that was never touched.
ChunkStore::HeldChunk* ChunkStore::Add(uint64_t number, uint64_t position, uint64_t length_bytes,
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
           .position = position,
           .is_used = true,
           .last_use = now,
           .memory = chunk_memory_[IndexOf(*best)].first(length_bytes)};
  return best;
}

}  // namespace lmdbio::load
