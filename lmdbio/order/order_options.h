// lmdbio/order/order_options.h - what can be asked of the order of records.
//
// Source: dissertation 3.1.1 (the pattern of access), 5.2.3 (chunks).
#ifndef LMDBIO_ORDER_ORDER_OPTIONS_H_
#define LMDBIO_ORDER_ORDER_OPTIONS_H_

#include <cstdint>

namespace lmdbio::order {

// What the stream's batches are made of.
enum class Order {
  kSequential,  // the database's own order
  kChunked,     // batches that follow each other take turns with neighbouring records, so that a
                // rank's records of all of them lie together in the file (see group_batches)
  kShuffle,     // another order in each epoch (see Shuffle)
};

// How records are shuffled. Either way each epoch has every record once.
enum class Shuffle {
  kGlobal,  // any record may come anywhere
  kBlock,   // blocks of neighbouring records come in random order, and are mixed within groups of
            // batches: large reads, less random
};

// Whether the walk is one of permuted blocks. (Shuffle means nothing to other orders.)
constexpr bool ShufflesBlocks(Order order, Shuffle shuffle) {
  return order == Order::kShuffle && shuffle == Shuffle::kBlock;
}

// Whether records are dealt out to batches that share a group: their size and number are then part
// of the order.
constexpr bool DealsOut(Order order, Shuffle shuffle, uint64_t reuse) {
  return order == Order::kChunked || ShufflesBlocks(order, shuffle) || reuse > 1;
}

// Which records of a batch are a rank's.
enum class Share {
  kBlock,       // rank r of P gets the r-th contiguous part (the dissertation)
  kRoundRobin,  // rank r gets the positions that are r modulo P (Caffe's solvers)
  kFill,        // as kBlock; but of a batch that is cut short the first ranks get whole parts
};

// What happens where the batch size does not divide the number of records.
enum class Tail {
  kWrap,   // a batch goes on with the first records of the next epoch (Caffe)
  kShort,  // the last batch of an epoch is smaller
  kDrop,   // the last records of an epoch are left out
};

// Who hands out a record again, where records are reused while they are in memory.
enum class ReuseAmong {
  kRank,  // the rank that had it
  kHost,  // in each pass another rank of its host
};

}  // namespace lmdbio::order
#endif  // LMDBIO_ORDER_ORDER_OPTIONS_H_
