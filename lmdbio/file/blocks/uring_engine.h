// lmdbio/file/blocks/uring_engine.h - blocks read through io_uring: one thread, as many reads in
// flight as the ring is deep.
//
// Source: dissertation 5.2.1 (explicit reads in place of the map).
#ifndef LMDBIO_FILE_BLOCKS_URING_ENGINE_H_
#define LMDBIO_FILE_BLOCKS_URING_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/blocks/block_file.h"
#include "lmdbio/file/blocks/block_files.h"
#include "lmdbio/file/blocks/block_queue.h"
#include "lmdbio/file/io/uring_ring.h"

namespace lmdbio::file {

// Threads: one at a time; one thread may start blocks and another await them.
class UringEngine final : public BlockEngine {
 public:
  // Registers the file and options.memory with the kernel if that is allowed. All pages of
  // registered memory are then in RAM for the engine's life.
  // Errors: kUnsupported  the kernel (before 5.6) or the container refuses io_uring
  //         kNotFound, kPermission, kResourceExhausted, kIo, kStale (see BlockFile)
  static Result<std::unique_ptr<BlockEngine>> Open(const std::string& data_path,
                                                   const EngineOptions& options);
  // The same for several files, which are not registered.
  // options  as BlockFiles::Open has changed them
  static Result<std::unique_ptr<BlockEngine>> Open(std::unique_ptr<BlockFiles> files,
                                                   const EngineOptions& options);

  std::string Describe() const override;
  Status Start(std::span<const BlockRead> blocks) override;
  using BlockEngine::WaitSome;
  Result<std::span<BlockDone>> WaitSome(std::chrono::milliseconds limit) override;
  Result<std::span<BlockDone>> Poll() override;
  uint64_t outstanding() const override { return queue_.outstanding(); }
  int event() override { return ring_->fd(); }
  EngineCounters counters() const override { return queue_.counters(); }
  std::vector<std::string> TakeNotes() override { return files_->TakeNotes(); }

 private:
  UringEngine(std::unique_ptr<UringRing> ring, std::unique_ptr<ReadableFiles> files,
              std::chrono::milliseconds retry_pause)
      : files_(std::move(files)), queue_(*files_, retry_pause), ring_(std::move(ring)) {}
  void RegisterFile(const BlockFile& file);
  void RegisterMemory(MutableBytes memory);
  int RegisteredBuffer(MutableBytes destination) const;

  Status CheckRing() const;
  Status Checked(Status status);
  Status SubmitReads();
  bool PassesOn(const PendingRead& part);
  void Reap();

  std::unique_ptr<ReadableFiles> files_;
  BlockQueue queue_;
  std::unique_ptr<UringRing> ring_;
  bool has_files_ = false;        // files are registered: 0 is buffered, 1 is direct
  std::optional<bool> is_fuse_;   // whether the file of the first buffered read is on FUSE
  MutableBytes fixed_memory_;     // registered in buffers of kPartBytesMax; empty if refused
  std::optional<Error> failure_;  // the failure of the ring; empty while it works
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_URING_ENGINE_H_
