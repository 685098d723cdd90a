// lmdbio/load/exchange/exchange_engine.h - a block engine whose reads are shared among readers.
//
// On several hosts with small batches, each host needs a few neighbouring records of every batch: a
// small part of every large read. Without an exchange each host sends a small request for it. With
// one, every large part of the file is read by one host and sent to those that need bytes of it.
//
// A thread does all work, so that other readers are served while this one sleeps.
//
// Two-phase I/O of MPI-IO is the model. Source: docs/exchange.md.
#ifndef LMDBIO_LOAD_EXCHANGE_EXCHANGE_ENGINE_H_
#define LMDBIO_LOAD_EXCHANGE_EXCHANGE_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lmdbio/base/placement.h"
#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/load/exchange/exchange_links.h"
#include "lmdbio/load/exchange/exchange_loop.h"
#include "lmdbio/ranks/shm/shared_memory.h"

namespace lmdbio::load {

// The memory of the chunks that a reader holds, and the largest chunk: it holds at least four.
inline constexpr uint64_t kExchangeMemoryBytes = 32 << 20;
inline constexpr uint64_t kExchangeChunkBytesMax = kExchangeMemoryBytes / 4;

// Threads: one at a time.
class ExchangeEngine final : public file::BlockEngine {
 public:
  // Starts the thread.
  // engine  reads the chunks, and everything that other readers do not send. It is taken over only
  //         if Open succeeds
  // links   are closed if Open fails: the other readers then go on without this one
  // cores   of the thread; empty: any
  // Requires: limits.chunk_bytes <= kExchangeChunkBytesMax; limits.file_bytes > 0
  // Errors: kResourceExhausted  no memory, descriptor or thread
  static Result<std::unique_ptr<ExchangeEngine>> Open(std::unique_ptr<file::BlockEngine>& engine,
                                                      ExchangeLinks links,
                                                      const ExchangeLimits& limits,
                                                      const CoreList& cores);

  // Closes the links. The other readers then read the missing bytes from the file.
  ~ExchangeEngine() override;

  std::string Describe() const override;
  Status Start(std::span<const file::BlockRead> blocks) override;
  using BlockEngine::WaitSome;
  Result<std::span<file::BlockDone>> WaitSome(std::chrono::milliseconds limit) override;
  Result<std::span<file::BlockDone>> Poll() override;
  uint64_t outstanding() const override;
  // Of the reads from the file: own ones, and chunks for all.
  file::EngineCounters counters() const override;
  std::vector<std::string> TakeNotes() override;

 private:
  ExchangeEngine(std::unique_ptr<ranks::SharedMemory> memory, UniqueFd wake_event)
      : memory_(std::move(memory)), wake_event_(std::move(wake_event)) {}
  void Run(const CoreList& cores);
  bool TakeReads();
  void Publish();
  Result<std::span<file::BlockDone>> TakeDone();

  std::unique_ptr<ranks::SharedMemory> memory_;
  UniqueFd wake_event_;
  std::unique_ptr<ExchangeLoop> loop_;     // of the thread
  std::vector<file::BlockDone> returned_;  // by the last WaitSome or Poll

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable done_came_;
  std::vector<file::BlockRead> new_reads_;
  std::vector<file::BlockDone> done_;
  uint64_t outstanding_ = 0;
  file::EngineCounters counters_;
  std::vector<std::string> notes_;
  std::string name_;
  std::optional<Error> failure_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_EXCHANGE_EXCHANGE_ENGINE_H_
