// lmdbio/load/exchange/chunk_store.h - the chunks of the file that a reader holds for all.
//
// A chunk is one large read. In key order each reader wants bytes of ascending chunks, epoch after
// epoch, so a chunk is done when all readers have wanted bytes of a later one. Other chunks make
// room only after nobody has wanted them for a while: a reader that is ahead of the others then
// waits for them, and the chunk is not read twice.
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
    uint64_t number = 0;    // of the file, in chunks
    uint64_t position = 0;  // of the newest want, in chunks from the start of the stream
    bool is_used = false;
    bool is_ready = false;   // its bytes are here
    uint32_t pin_count = 0;  // replies under way
    Clock::time_point last_use{};
    MutableBytes memory;  // the bytes of the chunk; shorter at the end of the file
  };

  // memory       [a multiple of chunk_bytes, not empty] borrowed
  // chunk_count  of the whole file
  ChunkStore(MutableBytes memory, uint64_t chunk_bytes, uint64_t chunk_count, size_t reader_count);

  // A reader wants bytes of a chunk. Returns its position in the stream, in chunks: it grows from
  // epoch to epoch.
  uint64_t NoteWant(size_t reader, uint64_t number);
  // A reader will want nothing more.
  void NoteGone(size_t reader) { positions_[reader] = kGone; }

  // The chunk with this number; null if it is not held.
  HeldChunk* Find(uint64_t number);

  // Reserves memory for a chunk that is about to be read: of a chunk that is done, else unused
  // memory, else of the chunk that was unused for longest, if for kPatience. Null: there is none.
  // position      of the newest want
  // length_bytes  [1 to chunk_bytes]
  HeldChunk* Add(uint64_t number, uint64_t position, uint64_t length_bytes, Clock::time_point now);

  // Gives the memory of a chunk up. Requires: no pins
  static void Remove(HeldChunk& chunk) { chunk.is_used = false; }

  size_t IndexOf(const HeldChunk& chunk) const {
    return static_cast<size_t>(&chunk - chunks_.data());
  }
  HeldChunk& At(size_t index) { return chunks_[index]; }

 private:
  static constexpr uint64_t kGone = ~uint64_t{0};

  bool IsDone(const HeldChunk& chunk) const;

  uint64_t chunk_count_;  // of the file
  std::vector<HeldChunk> chunks_;
  std::vector<MutableBytes> chunk_memory_;  // of each of chunks_
  std::vector<uint64_t> positions_;         // [readers] of the chunk that each wanted last
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_EXCHANGE_CHUNK_STORE_H_
