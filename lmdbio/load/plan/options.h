// lmdbio/load/plan/options.h - the options of the loader.
//
// Source: docs/options.md; dissertation 3.1.1 (the pattern of access), 5.2.
#ifndef LMDBIO_LOAD_PLAN_OPTIONS_H_
#define LMDBIO_LOAD_PLAN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/load/order/order_options.h"
#include "lmdbio/load/plan/strategy.h"

namespace lmdbio::load {

// The reaction to a record that cannot be read or is damaged.
enum class OnError {
  kRaise,  // every rank gets an error
  kSkip,   // the loader leaves the record out of its batch, and counts it
};

// The protection against a writer that changes the file (docs/format.md section 7).
enum class SnapshotMode {
  kImmutable,   // no process writes; a change is detected at the end of an epoch, or when it shows
  kOptimistic,  // every slot is checked after it was read
  kPinned,      // a read transaction of liblmdb keeps the pages in place; needs the lock file
};

// The page size of the memory that reads fill (ranks/shm/huge_pages.h).
enum class HugePageUse {
  kAuto,  // huge pages as far as the system has them
  kOff,   // small pages
};

// The memory that the ranks of a host share (ranks/group/group.h).
enum class WindowMemoryUse {
  kAuto,  // a file in memory; a window of MPI if the system refuses it
  kMpi,   // a window of MPI
};

// Whether a page walk reads values along with leaf pages (load/locate/walked_source.h).
enum class JointWalkUse {
  kAuto,  // if single reads of the storage are slow
  kOn,
  kOff,
};

// Whether hosts read parts of the file for each other (load/exchange/exchange_engine.h).
enum class ExchangeUse {
  kAuto,  // if hosts need small parts of each batch and single reads of the storage are slow
  kOn,
  kOff,
};

struct LoaderOptions {  // check-tree: large-class (a field for each option)
  // Begin generated LoaderOptions: scripts/generate_options.py, from api/options.toml.
  // --- Data
  // The named database to read. Empty: the main database.
  std::string database_name;
  // The reaction to a record that cannot be read or is damaged.
  OnError on_error = OnError::kRaise;
  // The protection against a writer that changes the file.
  SnapshotMode snapshot = SnapshotMode::kImmutable;
  // The folder that keeps the layout of a walked database for later jobs, with strategy auto, one
  // reader on one host and no provenance. "off": none. Empty: the folder in LMDBIO_CACHE, which may
  // be "off"; else lmdbio in the user's cache folder.
  std::string layout_cache;

  // --- Batches
  // Records of one batch, over all ranks.
  uint64_t global_batch_size = 64;
  // The number of batches after which the stream ends. 0: no limit.
  uint64_t max_batches = 0;

  // --- Order
  // The order of the records in the stream.
  Order order = Order::kSequential;
  // The end of an epoch, if the batch size does not divide the number of records.
  Tail tail = Tail::kShort;
  // The share of a rank in a batch.
  Share share = Share::kBlock;
  // Selects the random order of shuffling, and of the batches that reuse composes.
  uint64_t seed = 0;
  // Records of a block, with shuffle = block. 0: as many as fill 1 MiB of pages.
  uint64_t block_records = 0;
  // The number of batches of a batch group, whose records are read together and dealt out among the
  // batches. Used with order = chunked, with shuffle = block and with reuse. At most 1,024. Not
  // with share = round-robin. 0: as many as hold 32 MiB of pages.
  uint64_t group_batches = 0;
  // The number of times that each record is delivered while it is in memory, in newly composed
  // batches. An epoch becomes longer by this factor. 1 to 1,000.
  uint64_t reuse = 1;
  // The way to shuffle, with order = shuffle. Each epoch has every record once.
  Shuffle shuffle = Shuffle::kGlobal;
  // The rank that gets a record again, with reuse.
  ReuseAmong reuse_among = ReuseAmong::kRank;

  // --- Start
  // The stream begins with the first record of this epoch. Excludes state.
  uint64_t epoch = 0;
  // The stream begins at a saved state. The saved block_records and group_batches are used if these
  // options are 0.
  std::string state;

  // --- Shards
  // The number of jobs that share each batch, as if their ranks were the ranks of one job. For
  // processes without MPI.
  int num_shards = 1;
  // The number of this job among the shards, below num_shards.
  int shard_id = 0;

  // --- Memory
  // Memory of a host for the records that are read ahead. At least 1 MiB.
  uint64_t memory_budget_bytes = 256 << 20;
  // Memory of a host for the file cache, in addition to memory_budget_bytes. Strategy auto may keep
  // the parts of the file there that were read, so that nothing is read twice. The whole data file
  // must fit. 0: an eighth of the free memory, if the records are scattered and there are no
  // shards. -1: the file is never kept.
  int64_t keep_bytes = 0;
  // The approximate number of global batches to read ahead. A few are always read ahead. 0: as many
  // as the memory budget holds.
  uint64_t prefetch_batches = 0;
  // Batches may be views into a map of the file, if the job has one host and most of the file is in
  // its page cache. If a process truncates the file meanwhile, lost bytes of the batch in use
  // become zeros, and the next batch is an error. Only with strategy auto; not with snapshot =
  // optimistic.
  bool allow_map = true;
  // The page size of the memory that batches are read into.
  HugePageUse huge_pages = HugePageUse::kAuto;
  // The memory that the ranks of a host share. A host with one rank shares none.
  WindowMemoryUse window_memory = WindowMemoryUse::kAuto;

  // --- Reading
  // The number of ranks of each host that read.
  uint32_t readers_per_host = 1;
  // The number of reads in flight for each reader.
  uint32_t queue_depth = 32;
  // The size of the largest read. A multiple of 4,096. At the default, the -coal strategies derive
  // larger reads from memory_budget_bytes.
  uint64_t block_bytes = 1 << 20;
  // The method to find and to fetch records; docs/loader.md describes the strategies.
  Strategy strategy = Strategy::kAuto;
  // The code that executes reads, if the strategy does not determine it. None: the strategy
  // chooses.
  std::optional<file::EngineKind> engine;
  // The cores of the threads. "scp": one core of a rank reads and one synchronises gradients, if
  // the rank has at least three cores. "compute=0-5,input=6,sync=7": lists of cores; semicolons
  // separate such groups for the ranks of a host in order. With hwloc also "core:0-5", "numa:0" and
  // "near" (docs/sync.md). Reading threads run on the input cores. Empty: any core. If one rank has
  // a placement, all ranks must have one; the values may differ.
  std::string placement;
  // The use of the page cache, if the strategy does not determine it. None: the strategy chooses.
  std::optional<file::CachePolicy> cache;
  // The number of readers of the job that read at a time, with strategies in which they take turns.
  // 0: a trial of the first slots of the stream decides; on one host only with -stag.
  uint32_t stagger = 0;
  // Whether a page walk reads values along with the leaf pages, in key order and with direct reads,
  // if the file was written in order.
  JointWalkUse joint_walk = JointWalkUse::kAuto;
  // Whether the hosts read large parts of the file for each other, in key order, if a host needs
  // only a small part of each batch.
  ExchangeUse exchange = ExchangeUse::kAuto;
  // The most descriptors of data files that are open at the same time, if there are several files.
  // A file may need two. With fewer descriptors than files, files are opened again for later reads.
  // 0: a quarter of those that the process may have, and at most 1,024.
  uint64_t open_files_max = 0;
  // End generated LoaderOptions.
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_OPTIONS_H_
