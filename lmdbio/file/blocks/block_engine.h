// lmdbio/file/blocks/block_engine.h - a list of blocks in, completed blocks out, in any order.
//
// A block is one request to storage: some bytes of the data file and the memory they belong in. An
// engine keeps many of them under way and hands each back once it is filled or has failed for good.
// Three engines do the same work:
//
//   mmap   copies from a map of the file; the kernel reads as it sees fit, or as it is told
//   pread  a small pool of threads, one blocking read each
//   uring  io_uring: as many reads in flight as the queue is deep, one thread
//
// Direct reads are opportunistic: of each block the part that is aligned in the file and in memory
// goes around the page cache, the edges go through it, and a file system that refuses O_DIRECT is
// read through the page cache altogether (see TakeNotes).
//
// Source: dissertation 5.1.1 (what mmap costs), 5.1.2 (block size), 5.2.1;
// docs/loader.md "Engines".
#ifndef LMDBIO_FILE_BLOCKS_BLOCK_ENGINE_H_
#define LMDBIO_FILE_BLOCKS_BLOCK_ENGINE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/file/io/read_progress.h"

namespace lmdbio::file {

enum class EngineKind { kMmap, kPread, kUring };

// "mmap", "pread", "uring"
const char* EngineKindName(EngineKind kind);

enum class CachePolicy {
  kBuffered,  // through the page cache
  kDirect,    // around it where alignment and file system allow
};

struct EngineOptions {
  EngineKind kind = EngineKind::kUring;
  CachePolicy cache = CachePolicy::kBuffered;
  // Reads under way at once; threads of the pread engine, up to 32; MiB that the kernel is told of
  // in advance by the mmap engine, of which 1 tells it nothing.
  uint32_t queue_depth = 32;
  // Memory that most destinations will lie in, page-aligned; the uring engine registers it with the
  // kernel where that is allowed, which brings all of it into RAM. Borrowed for the engine's life;
  // may be empty.
  MutableBytes memory = {};
  // Whether the kernel may read more than it is asked for into the page cache, which is for nothing
  // where other hosts need what follows. The mmap engine has its own rules.
  bool reads_ahead = true;
  // After the first failure of a read, until it is tried again; later pauses are 4 and 16 times as
  // long. Other reads go on meanwhile. The mmap engine reads by page faults and retries nothing.
  std::chrono::milliseconds retry_pause = kRetryPause;
};

struct BlockRead {
  uint64_t offset = 0;       // bytes from the start of the file
  MutableBytes destination;  // the caller's; the engine's alone until the block is done
  uint64_t tag = 0;          // the caller's; comes back with the block
};

struct BlockDone {
  uint64_t tag = 0;
  // kIo (offset and errno), kCorruption (the file ends inside the block), others by errno; what
  // the destination then holds is unspecified.
  Status status;
};

// A read counts once it has come back.
struct EngineCounters {
  uint64_t request_count = 0;  // reads issued to the kernel; of the mmap engine, blocks
  uint64_t bytes = 0;          // that those reads brought
  uint64_t direct_bytes = 0;   // of these, around the page cache
  uint64_t retry_count = 0;    // reads issued again after a failure or a short read
};

// Threads: one at a time.
class BlockEngine {
 public:
  static constexpr auto kNoLimit = std::chrono::milliseconds::max();

  // Waits for what is under way and drops the rest: afterwards nobody writes to any destination.
  virtual ~BlockEngine() = default;

  // What it is in the end, as "uring, direct, 32 deep": a kernel without io_uring gives "pread".
  virtual std::string Describe() const = 0;

  // Takes over `blocks`, any number of them, and starts as many as the queue has room for. The
  // rest starts by itself as others complete (during WaitSome).
  // Errors: kIo  the engine itself has failed: nothing is under way any more, no destination is
  //              written again, and every further call fails the same
  //         kResourceExhausted  no thread could be started; nothing was taken over
  virtual Status Start(std::span<const BlockRead> blocks) = 0;

  // Sleeps until at least one block is done, and returns all that are. Empty if outstanding() is 0,
  // or if nothing is done for `limit` (which the mmap engine and kernels before 5.11 disregard).
  // A transient failure (EINTR, EAGAIN, EIO, short read) has been retried with growing pauses, a
  // bounded number of times, before it is reported.
  // Errors: kIo  the engine itself has failed, as in Start
  // Lifetime: until the next WaitSome or Poll; Start leaves it alone
  virtual Result<std::span<BlockDone>> WaitSome(std::chrono::milliseconds limit) = 0;
  Result<std::span<BlockDone>> WaitSome() { return WaitSome(kNoLimit); }

  // The same without sleeping: empty if nothing is done yet. (The mmap engine does its work in
  // these two calls, one block in each, and so takes its time in both.)
  // Errors: as WaitSome
  virtual Result<std::span<BlockDone>> Poll() = 0;

  // Blocks taken over and not handed back.
  virtual uint64_t outstanding() const = 0;

  virtual EngineCounters counters() const = 0;

  // One line for each compromise that was made, as "PATH: O_DIRECT is refused (...): reading
  // through the page cache". Each is said once. Drained by the call.
  virtual std::vector<std::string> TakeNotes() = 0;
};

// Opens the data file at `path` (file/io/data_path.h) and an engine over it. Asking for uring where
// the kernel or a container refuses io_uring gives a pread engine and a note.
// Errors: kNotFound, kPermission, kInvalidArgument (queue depth 0), kResourceExhausted, kIo
//         kStale  the file was replaced by another while it was opened
Result<std::unique_ptr<BlockEngine>> OpenBlockEngine(const std::string& path,
                                                     const EngineOptions& options);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_BLOCK_ENGINE_H_
