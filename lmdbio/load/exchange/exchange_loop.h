// lmdbio/load/exchange/exchange_loop.h - the work of a reader's exchange, without its thread.
//
//   a small read -> pieces, one for each chunk -> requests to the owners of the chunks
//   a request    -> the chunk is read, once for all -> a reply with the wanted bytes
//
// Chunk n of the file belongs to reader n modulo the number of readers. Large reads, and pieces
// that their owner does not send, are read from the file.
//
// Source: docs/exchange.md "Data flow".
#ifndef LMDBIO_LOAD_EXCHANGE_EXCHANGE_LOOP_H_
#define LMDBIO_LOAD_EXCHANGE_EXCHANGE_LOOP_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/load/exchange/chunk_store.h"
#include "lmdbio/load/exchange/exchange_link.h"
#include "lmdbio/load/exchange/exchange_links.h"

namespace lmdbio::load {

struct ExchangeLimits {
  uint64_t chunk_bytes = 1 << 20;  // of one read for all; the same on all readers
  uint64_t file_bytes = 0;         // of the snapshot; the same on all readers
  // Pieces that this reader has asked for at a time. More would let it run ahead of the others, and
  // chunks would be read again for those behind it.
  uint64_t pieces_max = 128;
};

// Threads: one at a time.
class ExchangeLoop {
 public:
  // memory  of the chunks; a multiple of chunk_bytes; borrowed
  ExchangeLoop(std::unique_ptr<file::BlockEngine> engine, ExchangeLinks links, MutableBytes memory,
               const ExchangeLimits& limits);

  // Takes reads over. As file::BlockEngine::Start, but nothing begins before Turn.
  void Add(std::span<const file::BlockRead> reads);

  // Does all that can be done without sleeping.
  // Errors: kIo  the engine has failed: the loop can only be destroyed
  Status Turn();

  // Sleeps until another Turn has something to do, or `event` is readable.
  void Sleep(int event);

  // The reads that are done, each once.
  std::vector<file::BlockDone> TakeDone() { return std::exchange(done_, {}); }

  file::BlockEngine& engine() { return *engine_; }

 private:
  // A part of a read, within one chunk.
  struct ReadPiece {
    uint32_t read = 0;  // index into reads_
    uint64_t offset = 0;
    uint64_t length_bytes = 0;
  };
  struct OpenRead {
    file::BlockRead read;
    uint64_t pieces_left = 0;
    bool is_own = false;  // some piece did not come: this reader reads all of it
  };
  struct PeerReader {
    ExchangeLink link;
    bool is_gone = false;
    std::unordered_map<uint32_t, ReadPiece> asked;  // by the id of the request
  };
  // Bytes of a chunk of this reader that somebody wants.
  struct Want {
    int from = 0;     // a reader; this one for a piece of its own
    uint32_t id = 0;  // of the request; index into reads_ for an own piece
    uint64_t offset = 0;
    uint64_t length_bytes = 0;
  };

  uint64_t ChunkOf(uint64_t offset) const { return offset / limits_.chunk_bytes; }
  int OwnerOf(uint64_t chunk) const {
    return static_cast<int>(chunk % static_cast<uint64_t>(peers_.size()));
  }
  MutableBytes PlaceOf(const ReadPiece& piece) const;
  void BeginReads();
  void Ask(const file::BlockRead& read);
  void AskFor(const ReadPiece& piece);
  void FinishPiece(uint32_t read, bool has_come);
  void ReadOwn(uint32_t read);
  void StartRead(const file::BlockRead& read);
  void Serve(const Want& want);
  bool Load(uint64_t number, std::vector<Want> wants);
  void LoadWaiting();
  void Answer(const Want& want, ChunkStore::HeldChunk* chunk);
  Status TakeLoaded();
  void TakeFrames(int from);
  bool TakeFrame(int from, const ExchangeFrame& frame);
  bool IsMine(const ExchangeFrame& request) const;
  void Send(int to);
  void Unpin(const std::vector<ExchangeFrame>& frames);
  void Drop(int peer);

  std::unique_ptr<file::BlockEngine> engine_;
  ExchangeLimits limits_;
  int rank_;
  std::vector<PeerReader> peers_;  // [readers] the one of rank_ is gone
  ChunkStore store_;
  std::vector<std::vector<Want>> wants_;           // [chunks held] while a chunk is being read
  std::map<uint64_t, std::vector<Want>> waiting_;  // by the number of a chunk that has no place
  std::vector<OpenRead> reads_;
  std::vector<uint32_t> free_reads_;  // indices of reads_
  std::deque<file::BlockRead> not_begun_;
  uint64_t piece_count_ = 0;  // asked for and not come
  uint32_t next_id_ = 0;
  std::vector<file::BlockDone> done_;
  std::optional<Error> failure_;  // of the engine
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_EXCHANGE_EXCHANGE_LOOP_H_
