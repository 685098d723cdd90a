// lmdbio/io/uring_engine.h - blocks read through io_uring: one thread, as many reads in flight as
// the ring is deep.
//
// Source: dissertation 5.2.1 (explicit reads in place of the map).
#ifndef LMDBIO_IO_URING_ENGINE_H_
#define LMDBIO_IO_URING_ENGINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/io/block_engine.h"
#include "lmdbio/io/block_file.h"
#include "lmdbio/io/done_list.h"
#include "lmdbio/io/uring_ring.h"

namespace lmdbio::io {

// Threads: one at a time; blocks may be started by one thread and awaited by another.
//
// What a read in the ring did not bring is read again by the calling thread (BlockFile::Finish): a
// failing file costs each block its pauses, one block after another.
class UringEngine final : public BlockEngine {
 public:
  // Registers the file and options.memory with the kernel where that is allowed. Registered memory
  // stays in RAM for the engine's life, and all of its pages are there from now on.
  // Errors: kUnsupported  this kernel (before 5.6) or container has no io_uring for us
  //         kNotFound, kPermission, kResourceExhausted, kIo, kStale (see BlockFile)
  static Result<std::unique_ptr<BlockEngine>> Open(const std::string& data_path,
                                                   const EngineOptions& options);
  ~UringEngine() override;

  std::string Describe() const override;
  Status Start(std::span<const BlockRead> blocks) override;
  using BlockEngine::WaitSome;
  Result<std::span<BlockDone>> WaitSome(std::chrono::milliseconds limit) override;
  Result<std::span<BlockDone>> Poll() override;
  uint64_t outstanding() const override { return outstanding_; }
  EngineCounters counters() const override { return counters_; }
  std::vector<std::string> TakeNotes() override { return file_->TakeNotes(); }

 private:
  // A block that was taken over, until its last part is done. Its place is then used again.
  struct Block {
    uint64_t tag = 0;
    uint64_t parts_left = 0;
    Status status;  // of the first part that failed
  };
  struct PartRead {
    BlockPart part;
    size_t block = 0;  // its place in blocks_
  };

  UringEngine(UniqueRing ring, std::unique_ptr<BlockFile> file, uint32_t depth);
  void RegisterFiles();
  void RegisterMemory(MutableBytes memory);
  int RegisteredBuffer(MutableBytes destination) const;

  Status CheckRing() const;
  void Enqueue(const BlockRead& block);
  void PrepareReads();
  Status Submit();
  Status SubmitAndWait(std::chrono::milliseconds limit);
  Status FailRing(int error_number);
  void Reap();
  void FinishPart(const PartRead& read, int got);
  std::span<BlockDone> TakeDone();
  uint32_t InFlight() const;
  void AwaitInFlight();

  std::unique_ptr<BlockFile> file_;
  UniqueRing ring_;
  std::optional<Error> failure_;  // of the ring, for good
  uint32_t depth_;
  bool has_files_ = false;     // registered: 0 is the buffered descriptor, 1 the direct one
  MutableBytes fixed_memory_;  // registered, in buffers of kPartBytesMax; empty if it is not
  uint64_t outstanding_ = 0;   // blocks taken over and not handed back
  std::deque<PartRead> waiting_;
  std::vector<PartRead> reads_;       // [depth_] the parts in the ring; its user data is the index
  std::vector<uint32_t> free_reads_;  // places in reads_
  std::vector<Block> blocks_;
  std::vector<size_t> free_blocks_;  // places in blocks_
  std::vector<BlockPart> parts_;     // of the block being taken over
  DoneList done_;
  EngineCounters counters_;
};

}  // namespace lmdbio::io
#endif  // LMDBIO_IO_URING_ENGINE_H_
