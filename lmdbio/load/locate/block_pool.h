// lmdbio/load/locate/block_pool.h - blocks of the file between the thread that walks and the thread
// that reads slots.
//
//                    walking thread                                reading thread
//   file --reads--> | block 7 | block 8 | ... | block 70 | --copies--> slots of the window
//                     first                     next
//
// The pool holds consecutive blocks, from `first` on. The walking thread fills them in file order,
// and takes leaf pages from them. The reading thread copies the pages of its slots from them. A
// block is dropped once bytes well behind it were copied. If the copies use too little of the
// blocks, the pool gives up, and both threads read for themselves.
//
// Source: dissertation 4.2.2 (speculative reading), 5.2.3 (large reads); docs/loader.md "Joint
// walk".
#ifndef LMDBIO_LOAD_LOCATE_BLOCK_POOL_H_
#define LMDBIO_LOAD_LOCATE_BLOCK_POOL_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/ranks/shm/shared_memory.h"

namespace lmdbio::load {

struct BlockPoolOptions {
  uint64_t block_bytes = 1 << 20;
  uint64_t block_count = 64;
  // Bytes behind a copied place that stay in the pool. A leaf page that was written again may lie
  // that far before its values.
  uint64_t slack_bytes = 8 << 20;
};

struct BlockPoolCounters {
  file::EngineCounters reads;  // of the walking thread
  uint64_t copied_bytes = 0;
  uint64_t missed_bytes = 0;   // the reading thread wanted them, but they were not in the pool
  uint64_t dropped_bytes = 0;  // of blocks that left the pool
  double slept_s = 0;          // of the reading thread, until blocks had arrived
};

// Threads: the sections name the threads.
class BlockPool {
 public:
  // range  of the file; its blocks are the ones that are read
  // Errors: kResourceExhausted  no memory
  static Result<std::unique_ptr<BlockPool>> Create(const Extent& range,
                                                   const BlockPoolOptions& options);

  // --- The walking thread

  // A block to be read, and the memory for it.
  struct Empty {
    uint64_t block = 0;
    Extent file;
    MutableBytes memory;
  };
  // The next block, if the pool has room for it. The block counts as being read from now on.
  std::optional<Empty> TakeNext();
  // The block has arrived, or it cannot be read.
  void SetArrived(uint64_t block) { SetState(block, BlockState::kGood); }
  void SetFailed(uint64_t block) { SetState(block, BlockState::kBad); }
  // Sleeps until there is room, all blocks were taken, or the pool has ended. Drops the first block
  // if the reading thread waits for the walk. Requires: no block is being read
  void AwaitRoom();

  enum class Place {
    kOutside,  // will not be in the pool: before its first block, or far behind the next one
    kComing,   // is being read, or will be soon
    kHere,
  };
  // The place of a block. Bytes of a block that is kHere stay until this thread calls TakeNext.
  Place Find(uint64_t block) const;
  Bytes BytesOf(const Extent& file) const;  // Requires: in one block, which is kHere

  bool has_taken_all() const;
  void SetReadCounters(const file::EngineCounters& reads);
  // The walking thread has ended: blocks that are being read never arrive.
  void End();

  // --- The reading thread

  // Copies bytes of the file. Sleeps until their blocks have arrived. False if they will not be in
  // the pool: the caller reads them.
  // After the walk has ended, the first place of the next epoch frees the memory of the pool.
  // file  [not empty]
  bool Copy(const Extent& file, MutableBytes to);
  // Between the two this thread waits for the walk, so the walk may drop blocks that nobody has
  // copied.
  void BeginWaiting();
  void EndWaiting();

  // --- Any thread

  // Ends all waits, now and later; every Copy fails from now on.
  void Stop();
  bool is_over() const;  // stopped or given up
  BlockPoolCounters counters() const;
  // Whether bytes lie in the range. The first and the last block may contain other bytes, which are
  // not read.
  bool Covers(const Extent& file) const {
    return file.offset >= range_.offset &&
           file.offset + file.length_bytes <= range_.offset + range_.length_bytes;
  }
  uint64_t block_of(uint64_t offset) const { return offset / options_.block_bytes; }
  uint64_t end_of(uint64_t block) const { return (block + 1) * options_.block_bytes; }

 private:
  enum class BlockState : uint8_t { kReading, kGood, kBad };

  BlockPool(const Extent& range, const BlockPoolOptions& options);
  void SetState(uint64_t block, BlockState state);
  Place FindLocked(uint64_t block) const;
  bool IsOverLocked() const { return is_stopped_ || has_given_up_; }
  void FreeIfOver(uint64_t block);
  void DropFirst();
  void DropBefore(uint64_t offset);
  bool AwaitBlocks(std::unique_lock<std::mutex>& lock, const Extent& file);

  BlockPoolOptions options_;
  Extent range_;
  std::unique_ptr<ranks::SharedMemory> memory_;  // of this process alone
  mutable std::mutex mutex_;                     // guards the rest
  std::condition_variable changed_;
  std::vector<BlockState> states_;  // [block_count] of block b: states_[b mod block_count]
  uint64_t first_;
  uint64_t next_;
  uint64_t end_;
  BlockPoolCounters counters_;
  bool is_waiting_ = false;
  bool is_stopped_ = false;
  bool has_ended_ = false;
  bool has_given_up_ = false;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_BLOCK_POOL_H_
