// lmdbio/file/blocks/mmap_engine.h - blocks copied from a map of the file.
//
// This is how LMDB reads, and with a queue depth of 1 the engine exists to measure what that costs:
// a fault for every few pages that are not in the page cache, taken one after another by the one
// thread that copies. The kernel is told nothing; its reading ahead is what it does by itself.
//
// With a deeper queue it tells the kernel what it will copy (MADV_WILLNEED), so many MiB ahead, in
// runs of neighbouring blocks, and sleeps for the last page of a run before it touches the first:
// one sleep for some MiB instead of one for each of the kernel's pieces.
//
// Source: dissertation 5.1.1.
#ifndef LMDBIO_FILE_BLOCKS_MMAP_ENGINE_H_
#define LMDBIO_FILE_BLOCKS_MMAP_ENGINE_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/blocks/block_file.h"
#include "lmdbio/file/blocks/done_list.h"

namespace lmdbio::file {

// Nothing is under way outside of a call: each WaitSome or Poll copies one block, and both take the
// time that the storage takes.
//
// A file that was cut short gives kCorruption: its size is looked up after each Start and after
// each MiB. One that is cut short meanwhile, or whose storage fails under it, ends the process with
// SIGBUS.
//
// Threads: one at a time.
class MmapEngine final : public BlockEngine {
 public:
  // Maps the file as long as it is now; what is appended later cannot be read. The depth of the
  // queue is how many MiB the kernel is told of in advance (1: nothing). Direct reads are
  // impossible, which gives a note.
  // Errors: kNotFound, kPermission, kResourceExhausted, kIo
  static Result<std::unique_ptr<BlockEngine>> Open(const std::string& data_path,
                                                   const EngineOptions& options);
  ~MmapEngine() override;

  std::string Describe() const override { return "mmap, buffered"; }
  Status Start(std::span<const BlockRead> blocks) override;
  Result<std::span<BlockDone>> WaitSome(std::chrono::milliseconds /*limit*/) override {
    return Poll();
  }
  Result<std::span<BlockDone>> Poll() override;
  uint64_t outstanding() const override { return waiting_.size(); }
  EngineCounters counters() const override { return counters_; }
  std::vector<std::string> TakeNotes() override { return file_->TakeNotes(); }

 private:
  MmapEngine(std::unique_ptr<BlockFile> file, Bytes map, uint32_t queue_depth)
      : file_(std::move(file)), map_(map), ahead_bytes_max_(AheadBytes(queue_depth)) {}
  static uint64_t AheadBytes(uint32_t queue_depth);
  Status Copy(const BlockRead& block);
  Status CheckSize(uint64_t offset, uint64_t length_bytes);
  void Announce();
  void AwaitRun();

  std::unique_ptr<BlockFile> file_;
  Bytes map_;
  uint64_t ahead_bytes_max_;
  std::deque<BlockRead> waiting_;
  size_t announced_count_ = 0;    // of the waiting blocks
  uint64_t announced_bytes_ = 0;  // of these
  std::deque<Extent> runs_;       // announced, and not yet slept for
  uint64_t known_bytes_ = 0;      // the file's size when it was last looked up; at most the map's
  uint64_t unchecked_bytes_ = 0;  // copied since
  DoneList done_;
  EngineCounters counters_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_MMAP_ENGINE_H_
