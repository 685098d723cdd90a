// lmdbio/load/exchange/chunk_store.h - the chunks of the file that a reader holds for all.
//
// A chunk is one large read. In key order each reader wants bytes of ascending chunks, so a chunk
// is done when all readers have wanted bytes of a later one. Other chunks make room only after
// nobody has wanted them for a while: a reader that is ahead of the others then waits for them, and
// the chunk is not read twice.
//
// Source: docs/exchange.md "Chunks".
#ifndef LMDBIO_LOAD_EXCHANGE_CHUNK_STORE_H_
#define LMDBIO_LOAD_EXCHANGE_CHUNK_STORE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lmdbio/base/types.h"

namespace lmdbio::load {

// Threads: one at a time. The caller passes the time.
class ChunkStore {
 public:
  using Clock = std::chrono::steady_clock;

  // A chunk that is not done stays at least this long after its last use.
  static constexpr auto kPatience = std::chrono::milliseconds(50);

  struct HeldChunk {
    uint64_t number = 0;  // of the file, in chunks
    bool is_used = false;
    bool is_ready = false;   // its bytes are here
    uint32_t pin_count = 0;  // replies under way
    Clock::time_point last_use{};
    MutableBytes memory;  // the bytes of the chunk; shorter at the end of the file
  };

  // memory  [a multiple of chunk_bytes, not empty] borrowed
  ChunkStore(MutableBytes memory, uint64_t chunk_bytes, size_t reader_count);

  // A reader wants bytes of a chunk of this store.
  void NoteWant(size_t reader, uint64_t number) { positions_[reader] = number; }
  // A reader will want nothing more.
  void NoteGone(size_t reader) { positions_[reader] = kGone; }

  // The chunk with this number; null if it is not held.
  HeldChunk* Find(uint64_t number);

  // A place for a chunk, which is not ready: of a chunk that is done, a new one, or of a chunk that
  // was used long ago. Null: there is none.
  // length_bytes  [1 to chunk_bytes]
  HeldChunk* Add(uint64_t number, uint64_t length_bytes, Clock::time_point now);

  // Gives the place of a chunk up. Requires: no pins
  static void Remove(HeldChunk& chunk) { chunk.is_used = false; }

  size_t IndexOf(const HeldChunk& chunk) const {
    return static_cast<size_t>(&chunk - chunks_.data());
  }
  HeldChunk& At(size_t index) { return chunks_[index]; }

 private:
  static constexpr uint64_t kGone = ~uint64_t{0};

  bool IsDone(const HeldChunk& chunk) const;

  std::vector<HeldChunk> chunks_;
  std::vector<MutableBytes> places_;  // the memory of each chunk
  std::vector<uint64_t> positions_;   // [readers] the chunk that each wanted last
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_EXCHANGE_CHUNK_STORE_H_
