// lmdbio/file/blocks/block_queue.h - the blocks of an engine, from Start until they are handed
// back.
//
//   Add -> parts wait -> Next -> the engine reads -> Take -> block is done -> TakeDone
//              ^                                      |
//              +---- short read or transient failure: again after a pause
//
// A failed part returns to the queue with the time of its retry. Sleeping in the thread that takes
// completions, or in one of few threads, would delay all other blocks.
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
  // files  borrowed for the queue's life
  BlockQueue(ReadableFiles& files, std::chrono::milliseconds retry_pause)
      : files_(files), retry_pause_(retry_pause) {}

  // Takes over `blocks`. A block that is empty or ends beyond the largest file offset is done.
  void Add(std::span<const BlockRead> blocks);

  // The part to read next, from its fd; nullopt if no part is due, or if the next one needs a
  // descriptor that a part in flight has. A part whose file cannot be opened has failed, so
  // has_done() may become true.
  std::optional<PendingRead> Next();
  // Whether the last Next had no descriptor: after Take there may be one.
  bool lacks_descriptor() const { return lacks_descriptor_; }

  // The due time of the earliest retry; nullopt if no retry waits.
  std::optional<ReadQueue::Clock::time_point> next_due() const { return parts_.next_due(); }

  // Takes back a part with the result of its call.
  // got  as for ReadProgress::Take. The rest of a short direct read goes through the page cache
  void Take(PendingRead part, ssize_t got);

  bool has_done() const { return !done_.empty(); }
  // Lifetime: until the next call
  std::span<BlockDone> TakeDone();

  // Drops the waiting parts.
  void Clear() { parts_.Clear(); }

  uint64_t outstanding() const { return outstanding_; }  // blocks that were not handed back
  const EngineCounters& counters() const { return counters_; }

 private:
  // A block that was taken over. Its entry is reused after its last part is done.
  struct Block {
    uint64_t tag = 0;
    uint64_t parts_left = 0;
    Status status;  // of the first part that failed
  };

  void AddOne(const BlockRead& block);
  void Count(const PendingRead& part, ssize_t got);
  Result<std::chrono::milliseconds> Judge(PendingRead& part, ssize_t got);
  void EndPart(const PendingRead& part, Status status);

  ReadableFiles& files_;
  const std::chrono::milliseconds retry_pause_;
  ReadQueue parts_;  // their owners are indices of blocks_
  std::vector<Block> blocks_;
  std::vector<size_t> free_blocks_;  // indices of blocks_
  std::vector<BlockPart> split_;     // the parts of the block being taken over
  bool lacks_descriptor_ = false;
  uint64_t outstanding_ = 0;
  DoneList done_;
  EngineCounters counters_;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_BLOCK_QUEUE_H_
