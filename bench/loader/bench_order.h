// bench/loader/bench_order.h - computes how well an order mixes the records of a database.
//
// Source: docs/order.md "Mixing".
#ifndef LMDBIO_BENCH_LOADER_BENCH_ORDER_H_
#define LMDBIO_BENCH_LOADER_BENCH_ORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lmdbio/base/status.h"
#include "lmdbio/load/plan/options.h"

namespace lmdbio::tools {

// The figures of one order in its first epoch. A pair consists of two records that are neighbours
// in the database and are both in the epoch. Its distance is that of their positions in the
// sequence.
struct OrderMix {
  std::string order;
  std::optional<uint64_t> block_records;  // nullopt if the order has no blocks
  uint64_t group_batches = 1;
  uint64_t pair_count = 0;  // sampled pairs
  double entropy_bits = 0;  // entropy of their distances
  uint64_t median_distance = 0;
  double adjacent_share = 0;   // share of adjacent positions with neighbouring records
  double positions_per_s = 0;  // rate of computing positions in order
};

struct OrderMixes {
  uint64_t record_count = 0;
  std::vector<OrderMix> orders;
};

// The entropy, in bits, of the distances in a random order.
double RandomOrderEntropy();

// Measures the orders sequential, chunked, block shuffle and global shuffle.
// options  order, shuffle, reuse, epoch and state are ignored
// Errors: kInvalidArgument (incompatible options, fewer than two records), kIo, kCorruption, ...
// Cost: a few pages of the file, a second at most
Result<OrderMixes> MeasureOrders(const std::string& data_path, const load::LoaderOptions& options);

std::string OrderTable(const OrderMixes& mixes);

// An object with "records", "random_entropy_bits" and "orders", an array with one entry each.
nlohmann::ordered_json ToJson(const OrderMixes& mixes);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_ORDER_H_
