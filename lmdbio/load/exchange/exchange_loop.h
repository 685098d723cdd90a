// lmdbio/load/exchange/exchange_loop.h - the work of a reader's exchange, without its thread.
//
//   a small read -> pieces, one for each chunk -> requests to the owners of the chunks
//   a request    -> the chunk is read, once for all -> a reply with the wanted bytes
//
// Chunk n of the file belongs to reader n modulo the number of readers. Large reads, and reads of
// which some piece does not come, are done from the file.
//
// Source: docs/exchange.md "Data flow".
#ifndef LMDBIO_LOAD_EXCHANGE_EXCHANGE_LOOP_H_
#define LMDBIO_LOAD_EXCHANGE_EXCHANGE_LOOP_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
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
  // Pieces that a reader asks for at a time. More would let it run ahead of the others, and chunks
  // would be read again for those behind it. The same on all readers.
  uint64_t pieces_max = 128;
  // A reader that owes bytes, or takes none, and moves no byte for this time is given up.
  std::chrono::milliseconds stall_limit{10'000};
  // A chunk that gets no memory for this time is refused to those that want it.
  std::chrono::milliseconds memory_limit{200};
};

// Threads: one at a time.
class ExchangeLoop {
 public:
  using Clock = ChunkStore::Clock;

  // memory  of the chunks; a multiple of chunk_bytes; borrowed
  // Requires: limits.file_bytes > 0
  ExchangeLoop(std::unique_ptr<file::BlockEngine> engine, ExchangeLinks links, MutableBytes memory,
               const ExchangeLimits& limits);

  // Ends all connections.
  ~ExchangeLoop();
  ExchangeLoop(const ExchangeLoop&) = delete;
  ExchangeLoop& operator=(const ExchangeLoop&) = delete;

  // Takes reads over. As file::BlockEngine::Start, but nothing begins before Turn.
  void Add(std::span<const file::BlockRead> reads);

  // Does all that can be done without sleeping.
  // Errors: kIo  the engine has failed: the loop can only be destroyed
  Status Turn();

  // Sleeps until another Turn has something to do, or `event` is readable.
  void Sleep(int event);

  // The reads that are done, each once.
  std::vector<file::BlockDone> TakeDone() { return std::exchange(done_, {}); }

  // Of the engine and of the exchange; each once.
  std::vector<std::string> TakeNotes();

  size_t reader_count() const { return peers_.size(); }
  file::BlockEngine& engine() { return *engine_; }
  // Gives the engine back. The loop can only be destroyed then. Requires: no Turn before
  std::unique_ptr<file::BlockEngine> TakeEngine() { return std::move(engine_); }

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
    bool is_from_file = false;  // some piece did not come: all of it is read from the file
  };
  struct PeerReader {
    ExchangeLink link;
    bool is_gone = false;
    std::unordered_map<uint32_t, ReadPiece> asked;  // by the id of the request
    uint64_t owed_count = 0;                        // its requests that are not answered
    uint64_t moved_bytes = 0;                       // at the last sign of life
    Clock::time_point alive_at{};
  };
  // Bytes of a chunk of this reader that somebody wants.
  struct Want {
    int from = 0;     // a reader; this one for a piece of its own
    uint32_t id = 0;  // of the request; index into reads_ for an own piece
    uint64_t offset = 0;
    uint64_t length_bytes = 0;
  };
  // A chunk without memory.
  struct WaitingChunk {
    std::vector<Want> wants;
    uint64_t position = 0;  // of the newest want
    Clock::time_point since{};
  };

  bool IsInFile(uint64_t offset, uint64_t length_bytes) const {
    return offset <= limits_.file_bytes && length_bytes <= limits_.file_bytes - offset;
  }
  uint64_t ChunkOf(uint64_t offset) const { return offset / limits_.chunk_bytes; }
  int OwnerOf(uint64_t chunk) const {
    return static_cast<int>(chunk % static_cast<uint64_t>(peers_.size()));
  }
  PeerReader& PeerAt(int reader) { return peers_[static_cast<size_t>(reader)]; }
  MutableBytes DestinationOf(const ReadPiece& piece) const;
  void BeginReads();
  void Ask(const file::BlockRead& read);
  void AskFor(const ReadPiece& piece);
  void FinishPiece(uint32_t read, bool has_come);
  void ReadFromFile(uint32_t read);
  void StartRead(const file::BlockRead& read);
  void Serve(const Want& want);
  void LoadWaiting();
  bool Load(uint64_t number, WaitingChunk& waiting);
  void Answer(const Want& want, ChunkStore::HeldChunk* chunk);
  Status TakeLoaded();
  void TakeFrames(int from);
  MutableBytes DestinationOfReply(int from, const ExchangeFrame& reply);
  bool TakeFrame(int from, const ExchangeFrame& frame);
  bool IsMine(const ExchangeFrame& request) const;
  void Send(int to);
  void NoteSent(int to, const std::vector<ExchangeFrame>& frames);
  void Drop(int reader, const char* why);
  void DropStalled();

  std::unique_ptr<file::BlockEngine> engine_;
  ExchangeLimits limits_;
  int rank_;
  std::vector<PeerReader> peers_;  // [readers] the one of rank_ is gone
  ChunkStore store_;
  std::vector<std::vector<Want>> wants_;      // [chunks held] while a chunk is being read
  std::map<uint64_t, WaitingChunk> waiting_;  // by number
  std::vector<OpenRead> reads_;
  std::vector<uint32_t> free_reads_;  // indices of reads_
  std::deque<file::BlockRead> not_begun_;
  uint64_t piece_count_ = 0;  // asked for and not come
  uint32_t next_id_ = 0;
  std::vector<file::BlockDone> done_;
  std::vector<std::string> notes_;
  std::optional<Error> failure_;  // of the engine
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_EXCHANGE_EXCHANGE_LOOP_H_
