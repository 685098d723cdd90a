// lmdbio/file/blocks/block_engine.h - a list of blocks in, completed blocks out, in any order.
//
// A block is one read request: an extent of the data file and the memory for it. An engine keeps
// many blocks in flight. It hands a block back when the block is filled or has finally failed. The
// three engines differ only in how they read:
//
//   mmap   copies from a map of the file; the kernel reads by its own rules, or as announced
//   pread  a small pool of threads, one blocking read each
//   uring  io_uring: one thread, as many reads in flight as the queue is deep
//
// Direct reads are used if possible. The part of a block that is aligned in file and memory goes
// around the page cache; the edges go through it. A mixed engine looks up each block in the page
// cache first. If the file system refuses O_DIRECT, all reads go through the page cache, and
// TakeNotes reports it.
//
// Source: dissertation 5.1.1 (the cost of mmap), 5.1.2 (block size), 5.2.1;
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
#include "lmdbio/file/io/file_space.h"
#include "lmdbio/file/io/open_files.h"
#include "lmdbio/file/io/read_progress.h"

namespace lmdbio::file {

enum class EngineKind { kMmap, kPread, kUring };

// "mmap", "pread", "uring"
const char* EngineKindName(EngineKind kind);

enum class CachePolicy {
  kBuffered,  // through the page cache
  kDirect,    // around it, as far as alignment and file system allow
  kMixed,     // what the page cache has from there, the rest as kDirect
};

// "buffered", "direct", "mixed"
const char* CachePolicyName(CachePolicy policy);

struct EngineOptions {
  EngineKind kind = EngineKind::kUring;
  CachePolicy cache = CachePolicy::kBuffered;
  // uring: reads in flight. pread: threads, at most 32. mmap: MiB that are announced to the kernel
  // in advance; 1 announces nothing.
  uint32_t queue_depth = 32;
  // Page-aligned memory of most destinations. The uring engine registers it with the kernel if that
  // is allowed, which brings all of it into RAM. Borrowed for the engine's life; may be empty.
  MutableBytes memory = {};
  // Whether the kernel may read ahead into the page cache. Reading ahead is wasted if other hosts
  // need the following bytes. The mmap engine ignores this.
  bool reads_ahead = true;
  // The pause between the first failure of a read and its retry. Later pauses are 4 and 16 times as
  // long. Other reads continue meanwhile. The mmap engine reads by page faults and never retries.
  std::chrono::milliseconds retry_pause = kRetryPause;
};

struct BlockRead {
  uint64_t offset = 0;       // bytes from the start of the file
  MutableBytes destination;  // the caller's; only the engine uses it until the block is done
  uint64_t tag = 0;          // the caller's; BlockDone returns it
};

struct BlockDone {
  uint64_t tag = 0;
  // kIo (offset and errno), kCorruption (the file ends inside the block), others by errno. After a
  // failure the content of the destination is unspecified.
  Status status;
};

// Completed reads.
struct EngineCounters {
  uint64_t request_count = 0;  // reads by the kernel; for the mmap engine, blocks
  uint64_t bytes = 0;          // bytes of these reads
  uint64_t direct_bytes = 0;   // the part of `bytes` that went around the page cache
  uint64_t retry_count = 0;    // reads issued again after a failure or a short read
};

// Threads: one at a time.
class BlockEngine {
 public:
  static constexpr auto kNoLimit = std::chrono::milliseconds::max();

  // Waits for the reads in flight and drops the others. Afterwards no destination is written.
  virtual ~BlockEngine() = default;

  // The engine in use, as "uring, direct, 32 deep". Without io_uring it begins with "pread".
  virtual std::string Describe() const = 0;

  // Takes over any number of `blocks` and starts as many as the queue has room for. The others
  // start as blocks complete, during WaitSome.
  // Errors: kIo  the engine itself has failed: no read is in flight, no destination is written
  //              again, and every later call returns the same error
  //         kResourceExhausted  no thread could be started; the engine took over no block
  virtual Status Start(std::span<const BlockRead> blocks) = 0;

  // Sleeps until at least one block is done, and returns all blocks that are done. The result is
  // empty if outstanding() is 0 or `limit` passes. The mmap engine and kernels before 5.11 ignore
  // `limit`. A transient failure (EINTR, EAGAIN, EIO, short read) is retried a few times, with
  // growing pauses, before it is reported.
  // Errors: kIo  the engine itself has failed, as in Start
  // Lifetime: until the next WaitSome or Poll; Start does not end it
  virtual Result<std::span<BlockDone>> WaitSome(std::chrono::milliseconds limit) = 0;
  Result<std::span<BlockDone>> WaitSome() { return WaitSome(kNoLimit); }

  // As WaitSome, without sleeping: empty if no block is done. The mmap engine copies one block in
  // each WaitSome or Poll, so both take the time of that copy.
  // Errors: as WaitSome
  virtual Result<std::span<BlockDone>> Poll() = 0;

  // The number of blocks that were taken over and not handed back.
  virtual uint64_t outstanding() const = 0;

  // A descriptor that poll reports as readable when reads complete; -1: the engine has none. For a
  // thread that also waits for something else. Poll must be called from time to time all the same:
  // it repeats failed reads, and returns blocks that were done within Start.
  virtual int event() { return -1; }

  virtual EngineCounters counters() const = 0;

  // One line for each compromise, as "PATH: O_DIRECT is refused (...): reading through the page
  // cache". The call removes the lines, so each is returned once.
  virtual std::vector<std::string> TakeNotes() = 0;
};

// Opens the data file at `path` (file/io/data_path.h) and an engine for it. If the kernel or a
// container refuses io_uring, kUring yields a pread engine and a note.
// Errors: kNotFound, kPermission, kInvalidArgument (queue depth 0), kResourceExhausted, kIo
//         kStale  the file was replaced while it was being opened
Result<std::unique_ptr<BlockEngine>> OpenBlockEngine(const std::string& path,
                                                     const EngineOptions& options);

// Several data files in one space of offsets. Both are borrowed.
struct JoinedFiles {
  OpenFiles* files = nullptr;        // [space->file_count()]
  const FileSpace* space = nullptr;  // of at least one file
};

// Opens an engine for several files. The offsets of its blocks count in their space; bytes of a
// block that belong to no file are left as they are. The engine keeps at most
// files.files->open_max() - 1 reads in flight.
// Errors: as above; kUnsupported  the mmap engine, which reads one file
Result<std::unique_ptr<BlockEngine>> OpenBlockEngine(const JoinedFiles& files,
                                                     const EngineOptions& options);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_BLOCK_ENGINE_H_
