// bench/loader/bench_order.h - how well an order mixes the records of a database, by arithmetic
// alone.
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

// One order, over its first epoch. Pairs are of records that are neighbours in the database, both
// of which the epoch hands out; a pair's distance is that of their positions in the sequence.
struct OrderMix {
  std::string order;
  std::optional<uint64_t> block_records;  // where the order has blocks
  uint64_t group_batches = 1;
  uint64_t pair_count = 0;  // looked at
  double entropy_bits = 0;  // of the distances
  uint64_t median_distance = 0;
  double adjacent_share = 0;   // of adjacent positions: their records are neighbours
  double positions_per_s = 0;  // computed, one after the other
};

struct OrderMixes {
  uint64_t record_count = 0;
  std::vector<OrderMix> orders;
};

// The entropy, in bits, of the distances in an order that leaves nothing but chance.
double RandomOrderEntropy();

// Sequential, chunked, block shuffle, global shuffle.
// options  everything but order, shuffle, reuse, epoch and state is obeyed
// Errors: kInvalidArgument (options that do not go together, no two records), kIo, kCorruption, ...
// Cost: a few pages of the file, a second at most
Result<OrderMixes> MeasureOrders(const std::string& data_path, const load::LoaderOptions& options);

std::string OrderTable(const OrderMixes& mixes);

// Its members "records", "random_entropy_bits" and, for each order, "orders".
nlohmann::ordered_json ToJson(const OrderMixes& mixes);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_ORDER_H_
