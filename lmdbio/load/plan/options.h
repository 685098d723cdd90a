// lmdbio/load/plan/options.h - what a trainer can ask of the loader.
//
// Source: docs/loader.md "Options"; dissertation 3.1.1 (the pattern of access), 5.2.
#ifndef LMDBIO_LOAD_PLAN_OPTIONS_H_
#define LMDBIO_LOAD_PLAN_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/load/order/order_options.h"
#include "lmdbio/load/plan/strategy.h"

namespace lmdbio::load {

using load::Order;
using load::ReuseAmong;
using load::Share;
using load::Shuffle;
using load::Tail;

// What happens to a record that cannot be read or is damaged.
enum class OnError {
  kRaise,  // every rank gets an error
  kSkip,   // the record is left out of its batch and counted
};

// How a writer at work is dealt with (docs/format.md section 7).
enum class SnapshotMode {
  kImmutable,   // nobody writes; a change is detected at the end of each epoch, and where it shows
  kOptimistic,  // nobody is told; every slot is checked after it was read
  kPinned,      // a read transaction of liblmdb's keeps the pages in place; needs its lock file
};

struct LoaderOptions {
  std::string database_name;  // empty: the main database
  Strategy strategy = Strategy::kAuto;

  uint64_t batch_size = 64;      // records of the global batch, shared out among all ranks
  uint64_t batch_count_max = 0;  // the stream ends after so many batches; 0: never
  Order order = Order::kSequential;
  Shuffle shuffle = Shuffle::kGlobal;  // with Order::kShuffle
  uint64_t seed = 0;                   // of shuffling, and of what reuse composes
  // With Shuffle::kBlock: records of a block; 0: as many as fill 1 MiB of pages.
  uint64_t block_records = 0;
  // Batches in a row that records are dealt out to, where batches are no neighbours in the walk: of
  // K batches with Order::kChunked, the k-th takes every K-th record from the k-th on; with
  // Shuffle::kBlock and with reuse, any K-th. 1 to 1,024, or 0 for as many as hold 32 MiB of pages.
  // Where an epoch's whole batches end there may be fewer. Not with Share::kRoundRobin.
  uint64_t group_batches = 0;
  // How often each record is handed out while it is in memory, in batches composed anew (8.4.1);
  // an epoch is then so many times as long. 1 to 1,000.
  uint64_t reuse = 1;
  ReuseAmong reuse_among = ReuseAmong::kRank;

  // Where the stream begins: at the first record of an epoch, or where another has stood
  // (Loader::Save), of which then everything in the options above that is left at 0 is taken.
  uint64_t epoch = 0;
  std::string state;

  // For processes that are no MPI job: each plays the ranks of one of several jobs, and these share
  // batches as if they were one.
  int num_shards = 1;
  int shard_id = 0;  // below num_shards

  Share share = Share::kBlock;
  Tail tail = Tail::kWrap;
  OnError on_error = OnError::kRaise;
  SnapshotMode snapshot = SnapshotMode::kImmutable;

  // If all of the file is in the page cache of the only host, kAuto reads nothing: batches are
  // views into a map of the file. As with LMDB itself, a file that is cut short while a batch of it
  // is in use then ends the process. Not with kOptimistic.
  bool in_place = true;

  uint32_t readers_per_host = 1;
  // With strategies in which readers take turns: how many of the job read at a time; 0: by a trial
  // of the stream's first slots.
  uint32_t stagger = 0;
  uint64_t memory_budget_bytes = 256 << 20;  // of a host, for the window

  // About so many batches of all ranks are read ahead, if the budget has room for them; a few are
  // in any case. 0: as many as the budget holds and the strategy likes.
  uint64_t prefetch_batches = 0;

  // Memory of a host, beside the budget, in which kAuto may keep the file as far as it was read, so
  // that nothing is read twice: the data file must fit. Touched only as it is filled. None: of a
  // file that fits into an eighth of the memory that is free, slots whose records lie scattered
  // over the file are kept, with num_shards = 1; 0: nothing is; else: all slots, if the file fits.
  std::optional<uint64_t> keep_bytes_max;

  // What the strategy leaves open; a strategy that names an engine is not overruled.
  std::optional<file::EngineKind> engine;
  std::optional<file::CachePolicy> cache;
  uint32_t queue_depth = 32;       // reads under way, for each reader
  uint64_t block_bytes = 1 << 20;  // the largest read; a multiple of 4096

  // Which cores are whose, as base/placement.h has it: "scp", "compute=0-5,input=6,sync=7", ...
  // Threads that read run on those for input; those that compute are the program's
  // (Loader::placement). "": anywhere. "scp" knows of the ranks of this loader's job alone. Where
  // one rank has a placement all have, not always the same.
  std::string placement;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_OPTIONS_H_
