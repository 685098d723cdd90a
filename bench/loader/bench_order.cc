#include "bench/loader/bench_order.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bench/loader/bench_expectation.h"
#include "lmdbio/load/files/opened_files.h"
#include "lmdbio/load/loader/open_decision.h"
#include "lmdbio/load/order/schedule.h"

namespace lmdbio::tools {
namespace {

using Clock = std::chrono::steady_clock;

// About 200 pairs for each bin keep the error of the entropy small. The limits also bound the time
// of large databases: each pair costs two inverse walks.
constexpr uint64_t kBinCount = 1024;
constexpr uint64_t kPairsMax = 200'000;
constexpr uint64_t kPositionsMax = 1'000'000;
constexpr uint64_t kSampleKey = 0x6d6978;  // an arbitrary seed for the choice of pairs

struct NamedOrder {
  const char* name;
  load::Order order;
  load::Shuffle shuffle;
};
constexpr std::array<NamedOrder, 4> kOrders = {
    {{"sequential", load::Order::kSequential, load::Shuffle::kGlobal},
     {"chunked", load::Order::kChunked, load::Shuffle::kGlobal},
     {"block shuffle", load::Order::kShuffle, load::Shuffle::kBlock},
     {"global shuffle", load::Order::kShuffle, load::Shuffle::kGlobal}}};

// The first epoch of a schedule: the position of each record.
class FirstEpoch {
 public:
  explicit FirstEpoch(const load::ScheduleOptions& options)
      : schedule_(options), walk_(schedule_.WalkOf(0)) {
    const uint64_t n = schedule_.record_count();
    const uint64_t left_out = options.tail == load::Tail::kDrop ? n % options.batch_size : 0;
    position_count_ = n - left_out;
  }

  const load::ScheduleOptions& options() const { return schedule_.options(); }
  uint64_t record_count() const { return schedule_.record_count(); }
  uint64_t position_count() const { return position_count_; }

  // nullopt if the epoch leaves the record out.
  std::optional<uint64_t> PositionOf(RecordIndex record) const {
    // The walk is a bijection with a cheap inverse, so no table of all records is needed: the
    // record's place in the walk, then its place among the batches of its group.
    const uint64_t place = walk_.PlaceOf(record);
    if (place >= position_count_) return std::nullopt;
    const load::BatchGroup group = schedule_.Group(place / schedule_.batch_size());
    return group.PositionOf(group.PlaceOf(place - group.first_walk, /*pass=*/0));
  }

  // Calls visit(record) for the first `count` positions, in order.
  template <typename Visitor>
  void Visit(uint64_t count, Visitor visit) const {
    for (uint64_t number = 0, position = 0; position < count; ++number) {
      const load::BatchGroup group = schedule_.Group(number);
      const uint64_t end = std::min(count - position, group.records_per_batch());
      for (uint64_t slot = 0; slot < end; ++slot, ++position) {
        const uint64_t i = group.WalkIndexOf({number - group.first_batch, slot});
        visit(walk_.RecordAt(group.first_walk + i));
      }
    }
  }

 private:
  load::Schedule schedule_;
  load::EpochWalk walk_;
  uint64_t position_count_ = 0;
};

// Distances of up to kPairsMax pairs. The database is divided into as many parts, and each part
// yields a random pair. Pairs at a fixed step would coincide with the blocks of an order.
std::vector<uint64_t> PairDistances(const FirstEpoch& epoch) {
  const uint64_t pair_count = epoch.record_count() - 1;
  const uint64_t sample_count = std::min(pair_count, kPairsMax);
  const uint64_t part = pair_count / sample_count;
  const uint64_t longer_parts = pair_count % sample_count;  // the first parts have one more pair
  std::vector<uint64_t> distances;
  distances.reserve(sample_count);
  for (uint64_t i = 0; i < sample_count; ++i) {
    const uint64_t first = i * part + std::min(i, longer_parts);
    const uint64_t size = part + (i < longer_parts ? 1 : 0);
    const uint64_t record = first + load::DeriveKey(kSampleKey, i) % size;
    const auto one = epoch.PositionOf({record});
    const auto other = epoch.PositionOf({record + 1});
    if (one && other) distances.push_back(*one < *other ? *other - *one : *one - *other);
  }
  return distances;
}

template <typename Weights>
double EntropyBits(const Weights& weights, double sum) {
  double bits = 0;
  for (const double weight : weights) {
    // The limit of x log x at 0 is 0, but the logarithm itself is not finite there.
    if (weight > 0) bits -= weight / sum * std::log2(weight / sum);
  }
  return bits;
}

double DistanceEntropy(const std::vector<uint64_t>& distances, uint64_t record_count) {
  std::array<double, kBinCount> counts{};
  for (const uint64_t distance : distances) {
    const double share = static_cast<double>(distance) / static_cast<double>(record_count);
    ++counts[std::min(static_cast<uint64_t>(share * kBinCount), kBinCount - 1)];
  }
  return EntropyBits(counts, static_cast<double>(distances.size()));
}

// Measures the speed of the sequence and the share of adjacent records, from its beginning.
void GoThrough(const FirstEpoch& epoch, OrderMix& mix) {
  // Measure has found a pair in the epoch, so there are at least two positions, and count - 1 is
  // not 0.
  const uint64_t count = std::min(epoch.position_count(), kPositionsMax);
  uint64_t adjacent_count = 0;
  std::optional<uint64_t> last;
  const auto start = Clock::now();
  epoch.Visit(count, [&](RecordIndex record) {
    if (last && (record.value == *last + 1 || *last == record.value + 1)) ++adjacent_count;
    last = record.value;
  });
  const std::chrono::duration<double> took = Clock::now() - start;
  mix.positions_per_s = static_cast<double>(count) / std::max(took.count(), 1e-9);
  mix.adjacent_share = static_cast<double>(adjacent_count) / static_cast<double>(count - 1);
}

Result<OrderMix> Measure(const NamedOrder& named, const load::OpenDecision& facts,
                         load::LoaderOptions options) {
  options.order = named.order;
  options.shuffle = named.shuffle;
  LMDBIO_TRY_VOID(load::CheckOptions(options));
  LMDBIO_TRY(const load::StreamState stream, load::StreamFor(facts, options));
  const FirstEpoch epoch(stream.schedule);
  OrderMix mix;
  mix.order = named.name;
  if (load::ShufflesBlocks(named.order, named.shuffle))
    mix.block_records = epoch.options().walk.block_records;
  mix.group_batches = epoch.options().group_batches;
  std::vector<uint64_t> distances = PairDistances(epoch);
  mix.pair_count = distances.size();
  if (distances.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: no two neighbours of the {} records are in the same epoch",
                            named.name, facts.record_count));
  }
  mix.entropy_bits = DistanceEntropy(distances, facts.record_count);
  // A median needs no sorted list; nth_element places it in linear time.
  const auto middle = distances.begin() + static_cast<std::ptrdiff_t>(distances.size() / 2);
  std::nth_element(distances.begin(), middle, distances.end());
  mix.median_distance = *middle;
  GoThrough(epoch, mix);
  return mix;
}

double ShareOfRandom(const OrderMix& mix) { return mix.entropy_bits / RandomOrderEntropy(); }

}  // namespace

double RandomOrderEntropy() {
  // Weight k is the integral of 2 (1 - x) over bin k, times the square of the number of bins.
  std::array<double, kBinCount> weights{};
  for (uint64_t k = 0; k < kBinCount; ++k) {
    weights[k] = static_cast<double>(2 * (kBinCount - k) - 1);
  }
  return EntropyBits(weights, static_cast<double>(kBinCount * kBinCount));
}

Result<OrderMixes> MeasureOrders(const std::string& data_path, const load::LoaderOptions& options) {
  LMDBIO_TRY(const auto files, load::OpenedFiles::Open({{data_path, options.database_name}}, {}));
  load::Notes notes;
  LMDBIO_TRY(const auto facts, load::LookAtFiles(*files, options, load::HostMember(), notes));
  LMDBIO_TRY_VOID(load::CheckHasBatch(facts, data_path, options));
  if (facts.record_count == 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: one record has no neighbours; give a larger database", data_path));
  }
  OrderMixes mixes{facts.record_count, {}};
  for (const NamedOrder& named : kOrders) {
    LMDBIO_TRY(OrderMix mix, Measure(named, facts, options));
    mixes.orders.push_back(std::move(mix));
  }
  return mixes;
}

std::string OrderTable(const OrderMixes& mixes) {
  std::string text = fmt::format(
      "# records: {}, {} sampled pairs of neighbours\n# entropy of a random order: {:.3f} bits\n",
      mixes.record_count, mixes.orders.front().pair_count, RandomOrderEntropy());
  text +=
      fmt::format("{:<14} {:>8} {:>7} {:>8} {:>11} {:>12} {:>11} {:>12}\n", "order", "block",
                  "group", "entropy", "% of random", "median dist.", "adjacent %", "positions/s");
  for (const OrderMix& mix : mixes.orders) {
    text += fmt::format("{:<14} {:>8} {:>7} {:>8.3f} {:>11.2f} {:>12} {:>11.4f} {:>12.4g}\n",
                        mix.order, mix.block_records ? fmt::to_string(*mix.block_records) : "-",
                        mix.group_batches, mix.entropy_bits, 100 * ShareOfRandom(mix),
                        mix.median_distance, 100 * mix.adjacent_share, mix.positions_per_s);
  }
  return text;
}

nlohmann::ordered_json ToJson(const OrderMixes& mixes) {
  nlohmann::ordered_json out = {{"records", mixes.record_count},
                                {"random_entropy_bits", RandomOrderEntropy()},
                                {"orders", nlohmann::ordered_json::array()}};
  for (const OrderMix& mix : mixes.orders) {
    nlohmann::ordered_json row = {{"order", mix.order}, {"block_records", nullptr}};
    if (mix.block_records) row["block_records"] = *mix.block_records;
    row["group_batches"] = mix.group_batches;
    row["pairs"] = mix.pair_count;
    row["entropy_bits"] = mix.entropy_bits;
    row["entropy_share"] = ShareOfRandom(mix);
    row["median_distance"] = mix.median_distance;
    row["adjacent_share"] = mix.adjacent_share;
    row["positions_per_s"] = mix.positions_per_s;
    out["orders"].push_back(row);
  }
  return out;
}

}  // namespace lmdbio::tools
