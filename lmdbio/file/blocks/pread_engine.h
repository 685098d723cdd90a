// lmdbio/file/blocks/pread_engine.h - blocks read by a pool of threads, one blocking read each.
//
// The engine needs only pread of the kernel, so it replaces uring where io_uring is refused.
//
// Source: dissertation 5.2.1 (explicit reads in place of the map).
#ifndef LMDBIO_FILE_BLOCKS_PREAD_ENGINE_H_
#define LMDBIO_FILE_BLOCKS_PREAD_ENGINE_H_

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/blocks/block_file.h"
#include "lmdbio/file/blocks/block_files.h"
#include "lmdbio/file/blocks/block_queue.h"

namespace lmdbio::file {

// Threads: one at a time. The pool's own threads take no signals.
class PreadEngine final : public BlockEngine {
 public:
  // The most threads of an engine, however deep its queue. Each thread costs a stack, and a context
  // switch for each read; fewer threads keep one drive or mount busy.
  static constexpr uint32_t kThreadsMax = 32;

  // Starts no thread. Start starts one for each block, up to the queue depth and kThreadsMax.
  // Errors: kNotFound, kPermission, kResourceExhausted, kIo, kStale (see BlockFile)
  static Result<std::unique_ptr<PreadEngine>> Open(const std::string& data_path,
                                                   const EngineOptions& options);
  // The same for several files. options  as BlockFiles::Open has changed them
  static std::unique_ptr<PreadEngine> Open(std::unique_ptr<BlockFiles> files,
                                           const EngineOptions& options);
  ~PreadEngine() override;

  std::string Describe() const override;
  Status Start(std::span<const BlockRead> blocks) override;
  using BlockEngine::WaitSome;
  Result<std::span<BlockDone>> WaitSome(std::chrono::milliseconds limit) override;
  Result<std::span<BlockDone>> Poll() override;
  uint64_t outstanding() const override;
  int event() override;
  EngineCounters counters() const override;
  std::vector<std::string> TakeNotes() override { return files_->TakeNotes(); }

  // Adds a note with the reason for this engine.
  void AddNote(std::string note) { files_->AddNote(std::move(note)); }

 private:
  PreadEngine(std::unique_ptr<ReadableFiles> files, const EngineOptions& options);
  Status StartThreads(uint64_t wanted);
  void Work();
  void AwaitWork(std::unique_lock<std::mutex>& lock);
  void SignalDone();
  std::span<BlockDone> TakeDone();

  std::unique_ptr<ReadableFiles> files_;
  const uint32_t threads_max_;
  std::vector<std::thread> threads_;

  mutable std::mutex mutex_;  // guards all members below
  std::condition_variable work_came_;
  std::condition_variable block_done_;
  BlockQueue queue_;
  UniqueFd done_event_;  // after the first call of event
  bool is_ending_ = false;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_PREAD_ENGINE_H_
