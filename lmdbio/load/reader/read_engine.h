// lmdbio/load/reader/read_engine.h - the block engine of a reader, with its clock, notes and name.
//
// Source: docs/loader.md "Engines", "Counters".
#ifndef LMDBIO_LOAD_READER_READ_ENGINE_H_
#define LMDBIO_LOAD_READER_READ_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/load/reader/reader_tally.h"
#include "lmdbio/load/slots/notes.h"

namespace lmdbio::load {

// Threads: the reading thread; name from any thread.
class ReadEngine {
 public:
  // notes, tally  borrowed
  ReadEngine(std::unique_ptr<file::BlockEngine> engine, Notes& notes, ReaderTally& tally);

  // Starts `reads`. Errors: as file::BlockEngine::Start
  Status Start(std::span<const file::BlockRead> reads);

  // Sleeps until a read is done, or for `limit`. Passes on the engine's notes and counters.
  // Errors: as file::BlockEngine::WaitSome
  // Lifetime: of the result: until the next call
  Result<std::span<file::BlockDone>> Wait(std::chrono::milliseconds limit);

  // As Wait, without sleeping. Errors: as Wait
  Result<std::span<file::BlockDone>> Poll();

  uint64_t outstanding() const { return engine_->outstanding(); }

  // Waits for the reads in flight and closes the engine. Only name may be called afterwards.
  void Close() { engine_.reset(); }

  // The present text of file::BlockEngine::Describe.
  std::string name() const;

 private:
  Result<std::span<file::BlockDone>> Taken(Result<std::span<file::BlockDone>> done);
  void PassNotesOn();
  void CountReads();

  std::unique_ptr<file::BlockEngine> engine_;
  Notes& notes_;
  ReaderTally& tally_;
  std::chrono::steady_clock::time_point busy_since_;  // while reads are in flight
  mutable std::mutex name_mutex_;
  std::string name_;  // guarded by name_mutex_
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_READER_READ_ENGINE_H_
