// lmdbio/load/order/order_options.h - the options of the record order.
//
// Source: dissertation 3.1.1 (the pattern of access), 5.2.3 (chunks).
#ifndef LMDBIO_LOAD_ORDER_ORDER_OPTIONS_H_
#define LMDBIO_LOAD_ORDER_ORDER_OPTIONS_H_

#include <cstdint>

namespace lmdbio::load {

// The order of the records in the stream.
enum class Order {
  kSequential,  // the order of the database
  kChunked,  // neighbouring records are dealt in turn to the batches of a group, so that a rank's
             // records of the whole group are together in the file (see group_batches)
  kShuffle,  // another order in each epoch (see Shuffle)
};

// How records are shuffled. With both, each epoch has every record once.
enum class Shuffle {
  kGlobal,  // a permutation of all records
  kBlock,   // blocks of neighbouring records come in random order, and their records are mixed
            // within a batch group: larger reads, less random
};

// Whether the epoch order consists of permuted blocks. (Other orders ignore Shuffle.)
constexpr bool ShufflesBlocks(Order order, Shuffle shuffle) {
  return order == Order::kShuffle && shuffle == Shuffle::kBlock;
}

// Whether the records of a batch group are dealt out among its batches. If so, the batch size and
// the group size are part of the order.
constexpr bool DealsOut(Order order, Shuffle shuffle, uint64_t reuse) {
  return order == Order::kChunked || ShufflesBlocks(order, shuffle) || reuse > 1;
}

// The share of a rank in a batch.
enum class Share {
  kBlock,       // rank r of P gets the r-th contiguous part (the dissertation)
  kRoundRobin,  // rank r gets the positions that are r modulo P (Caffe's solvers)
  kFill,        // as kBlock, but in a short batch the first ranks get parts of full size
};

// The end of an epoch, if the batch size does not divide the number of records.
enum class Tail {
  kWrap,   // the last batch continues with the first records of the next epoch (Caffe)
  kShort,  // the last batch of an epoch is smaller
  kDrop,   // the last records of an epoch are left out
};

// The rank that gets a record again, if records are reused while they are in memory.
enum class ReuseAmong {
  kRank,  // the same rank in each pass
  kHost,  // another rank of the same host in each pass
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_ORDER_ORDER_OPTIONS_H_
