// lmdbio/file/blocks/block_queue.h - the blocks of an engine, from Start until they are handed
// back.
//
//   Add -> parts wait -> Next -> the engine reads -> Take -> block is done -> TakeDone
//              ^                                      |
//              +---- the part has come short, or failed for a moment: after a pause
//
// A part that failed goes back to the queue with the time of its next try, because a retry that
// sleeps where completions are reaped, or in one of few threads, would hold up all other blocks.
#ifndef LMDBIO_FILE_BLOCKS_BLOCK_QUEUE_H_
#define LMDBIO_FILE_BLOCKS_BLOCK_QUEUE_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/blocks/block_file.h"
#include "lmdbio/file/blocks/done_list.h"
#include "lmdbio/file/io/read_queue.h"

namespace lmdbio::file {

// Threads: one at a time.
class BlockQueue {
 public:
  // file  borrowed for the queue's life
  BlockQueue(BlockFile& file, std::chrono::milliseconds retry_pause)
      : file_(file), retry_pause_(retry_pause) {}

  // Takes over `blocks`. One that no file can hold, or that is empty, is done.
  void Add(std::span<const BlockRead> blocks);

  // The part to be read next, from Descriptor(part); nullopt if there is none, or none whose time
  // has come.
  std::optional<PendingRead> Next();
  int Descriptor(const PendingRead& part) const {
    return part.is_direct ? file_.direct_fd() : file_.buffered_fd();
  }

  // When the first of the parts that wait for their time may be read; nullopt if none waits.
  std::optional<ReadQueue::Clock::time_point> next_due() const { return parts_.next_due(); }

  // Takes back a part and what the call for it came back with (as ReadProgress::Take wants it). The
  // rest of a direct read that fell short is read through the page cache.
  void Take(PendingRead part, ssize_t got);

  bool has_done() const { return !done_.empty(); }
  // Lifetime: until the next call
  std::span<BlockDone> TakeDone();

  // Drops the parts that wait.
  void Clear() { parts_.Clear(); }

  uint64_t outstanding() const { return outstanding_; }  // blocks added and not handed back
  const EngineCounters& counters() const { return counters_; }

 private:
  // A block that was taken over, until its last part is done. Its place is then used again.
  struct Block {
    uint64_t tag = 0;
    uint64_t parts_left = 0;
    Status status;  // of the first part that failed
  };

  void AddOne(const BlockRead& block);
  void Count(const PendingRead& part, ssize_t got);
  Result<std::chrono::milliseconds> Judge(PendingRead& part, ssize_t got);

  BlockFile& file_;
  const std::chrono::milliseconds retry_pause_;
  ReadQueue parts_;  // their owners are places in blocks_
  std::vector<Block> blocks_;
  std::vector<size_t> free_blocks_;  // places in blocks_
  std::vector<BlockPart> split_;     // the parts of the block being taken over
  uint64_t outstanding_ = 0;
  DoneList done_;
  EngineCounters counters_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_BLOCK_QUEUE_H_
