// lmdbio/loader/options.h - what a trainer can ask of the loader.
//
// Source: docs/loader.md "Options"; dissertation 3.1.1 (the pattern of access), 5.2.
#ifndef LMDBIO_LOADER_OPTIONS_H_
#define LMDBIO_LOADER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "lmdbio/io/block_engine.h"
#include "lmdbio/loader/strategy.h"
#include "lmdbio/order/order_options.h"

namespace lmdbio::loader {

using order::Order;
using order::Share;
using order::Tail;

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
  // With kChunked: of so many batches in a row, K, the k-th takes every K-th record from the k-th
  // on; 1 to 1,024, or 0 for as many as hold 32 MiB of pages. Where an epoch's whole batches end
  // there may be fewer. Needs Share::kBlock.
  uint64_t chunk_batches = 0;
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

  // What the strategy leaves open; a strategy that names an engine is not overruled.
  std::optional<io::EngineKind> engine;
  std::optional<io::CachePolicy> cache;
  uint32_t queue_depth = 32;       // reads under way, for each reader
  uint64_t block_bytes = 1 << 20;  // the largest read; a multiple of 4096
};

}  // namespace lmdbio::loader
#endif  // LMDBIO_LOADER_OPTIONS_H_
