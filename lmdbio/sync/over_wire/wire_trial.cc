#include "lmdbio/sync/over_wire/wire_trial.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "lmdbio/base/kept_memory.h"

namespace lmdbio::sync {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::array<uint64_t, 6> kTriedBytes = {1 << 10,   8 << 10, 64 << 10,
                                                 512 << 10, 4 << 20, 16 << 20};
constexpr std::array kAlgorithms = {WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                                    WireAlgorithm::kHalving, WireAlgorithm::kDirect};
constexpr std::array<uint64_t, 2> kOtherChunkBytes = {64 << 10, 1 << 20};
// The best of so many calls counts, because the kernel enlarges socket buffers during the first.
constexpr int kRounds = 4;
constexpr uint64_t kRowCountMax = 64;
// Up to this factor, a longer time per byte counts as equal to the best.
constexpr double kAmpleLoss = 1.1;

// The next measurement, from rank 0.
struct TrialCommand {
  enum class TrialKind : uint64_t { kTry = 1, kEnd = 2 };
  TrialKind kind = TrialKind::kEnd;
  uint64_t bytes = 0;
  WireChoice choice;
};

Status Share(const WireJob& job, TrialCommand& order) {
  return TreeOrChainBroadcast(job, std::as_writable_bytes(std::span(&order, 1)), 0);
}

class WireTrial {
 public:
  WireTrial(const WireJob& job, const TriedAllReduce& all_reduce)
      : job_(job), all_reduce_(all_reduce) {}

  int rank_count() const { return job_.wire.size(); }

  // On rank 0. Returns the least time of a call.
  Result<Seconds> Try(uint64_t bytes, const WireChoice& choice) {
    order_ = {.kind = TrialCommand::TrialKind::kTry, .bytes = bytes, .choice = choice};
    LMDBIO_TRY_VOID(Share(job_, order_));
    return Run(order_);
  }
  // On all other ranks. Returns after the last command.
  Status Follow() {
    while (true) {
      TrialCommand& order = order_;
      LMDBIO_TRY_VOID(Share(job_, order));
      if (order.kind == TrialCommand::TrialKind::kEnd) return {};
      // The command is from a peer, so it is checked before its numbers are used.
      if (order.kind != TrialCommand::TrialKind::kTry || order.bytes > kTriedBytes.back() ||
          !CheckWireTable(OneWireAlgorithm(order.choice.algorithm, order.choice.chunk_bytes,
                                           order.choice.chunk_depth))) {
        return Fail(ErrorCode::kInternal, "malformed command of a trial from rank 0");
      }
      LMDBIO_TRY_VOID(Run(order));
    }
  }
  Status End() {
    order_ = {};
    return Share(job_, order_);
  }

 private:
  Result<Seconds> Run(const TrialCommand& order) {
    // The values are zeros, and sums of zeros stay zeros however often they are reduced.
    values_.resize(kTriedBytes.back() / sizeof(float));
    const Values values{.data = reinterpret_cast<std::byte*>(values_.data()),
                        .count = order.bytes / sizeof(float),
                        .type = DataType::kFloat32};
    Seconds least(0);
    for (int round = 0; round < kRounds; ++round) {
      const auto begin = Clock::now();
      LMDBIO_TRY_VOID(all_reduce_(order.choice, values));
      const Seconds taken = Clock::now() - begin;
      least = round == 0 ? taken : std::min(least, taken);
    }
    return least;
  }

  const WireJob& job_;
  const TriedAllReduce& all_reduce_;
  // Memory of messages.
  TrialCommand order_;
  std::vector<float> values_;
};

// Keeps memory of messages after a failure, if they may still write to it. Returns the status.
template <typename Owner>
Status KeepAfter(Status status, const Wire& wire, Owner memory) {
  if (!status && wire.writes_after_failure()) KeepForever(std::move(memory));
  return status;
}

// The outcome of a trial, which rank 0 broadcasts.
struct SharedTable {
  uint64_t count = 0;
  uint64_t ample_bytes = 0;
  WireTable table;
};

struct Best {
  WireChoice choice;
  Seconds time = Seconds(0);
  bool is_known = false;

  void Hear(const WireChoice& tried, Seconds taken) {
    if (is_known && time <= taken) return;
    *this = {tried, taken, true};
  }
};

Result<Best> BestFor(WireTrial& trial, uint64_t bytes) {
  Best best;
  for (const WireAlgorithm algorithm : kAlgorithms) {
    // Doubling sends all values in every step, so above 64 KiB it would waste the time of the
    // trial.
    if (algorithm == WireAlgorithm::kDoubling && bytes > kTriedBytes[2]) continue;
    if (algorithm == WireAlgorithm::kDirect && trial.rank_count() > kDirectRanksMax) continue;
    WireChoice choice;
    choice.algorithm = algorithm;
    if (algorithm == WireAlgorithm::kDoubling) choice.bytes_max = kDoublingBytesMax;
    LMDBIO_TRY(const Seconds taken, trial.Try(bytes, choice));
    best.Hear(choice, taken);
  }
  // From 4 MiB on. Smaller sizes have few chunks, or one.
  for (const uint64_t chunk_bytes : kOtherChunkBytes) {
    if (bytes < kTriedBytes[4]) break;
    WireChoice choice = best.choice;
    choice.chunk_bytes = chunk_bytes;
    LMDBIO_TRY(const Seconds taken, trial.Try(bytes, choice));
    best.Hear(choice, taken);
  }
  return best;
}

// The geometric mean of this size and the next one.
uint64_t BoundBehind(size_t i) {
  if (i + 1 == kTriedBytes.size()) return kAnyBytes;
  return static_cast<uint64_t>(
      std::sqrt(static_cast<double>(kTriedBytes[i]) * static_cast<double>(kTriedBytes[i + 1])));
}

// The smallest measured size whose time per byte is close to the best.
// costs  [measured sizes] seconds per byte
uint64_t AmpleBytes(const std::vector<double>& costs) {
  // The time per byte mostly falls with the size, so a trial that ended early has not seen the
  // best.
  if (kTriedBytes[costs.size() - 1] < kUsualAmpleBytes) return kUsualAmpleBytes;
  const double limit = kAmpleLoss * *std::min_element(costs.begin(), costs.end());
  const auto first =
      std::find_if(costs.begin(), costs.end(), [limit](double cost) { return cost <= limit; });
  return kTriedBytes[static_cast<size_t>(first - costs.begin())];
}

// Measures at least the smallest size. Sizes in a row with the same best choice become one row of
// the table.
Result<MeasuredWire> Lead(WireTrial& trial, std::chrono::milliseconds trial_time) {
  WireTable table;
  std::vector<double> costs;
  const auto end = Clock::now() + trial_time;
  for (size_t i = 0; i < kTriedBytes.size() && (i == 0 || Clock::now() < end); ++i) {
    LMDBIO_TRY(Best best, BestFor(trial, kTriedBytes[i]));
    costs.push_back(best.time.count() / static_cast<double>(kTriedBytes[i]));
    const auto is_like = [&](const WireChoice& row) {
      return row.algorithm == best.choice.algorithm && row.chunk_bytes == best.choice.chunk_bytes;
    };
    if (!table.empty() && is_like(table.back())) table.pop_back();
    best.choice.bytes_max = BoundBehind(i);
    table.push_back(best.choice);
  }
  LMDBIO_TRY_VOID(trial.End());
  // The time was over before a large size. The usual table stands in for it.
  if (table.back().algorithm == WireAlgorithm::kDoubling) {
    table.push_back(UsualWireTable().back());
  }
  table.back().bytes_max = kAnyBytes;
  return MeasuredWire{std::move(table), AmpleBytes(costs)};
}

}  // namespace

Result<MeasuredWire> MeasureWire(const WireJob& job, std::chrono::milliseconds trial_time,
                                 const TriedAllReduce& all_reduce) {
  auto trial = std::make_unique<WireTrial>(job, all_reduce);
  Result<MeasuredWire> measured = MeasuredWire();
  if (job.wire.rank() == 0) {
    measured = Lead(*trial, trial_time);
  } else if (Status followed = trial->Follow(); !followed) {
    measured = Fail(std::move(followed).error());
  }
  if (!measured && job.wire.writes_after_failure()) KeepForever(std::move(trial));
  if (!measured) return measured;
  LMDBIO_TRY(measured->table, ShareWireTable(job, std::move(measured->table)));
  auto shared = std::make_unique<SharedTable>();
  shared->ample_bytes = measured->ample_bytes;
  Status status =
      TreeOrChainBroadcast(job, std::as_writable_bytes(std::span(&shared->ample_bytes, 1)), 0);
  if (status) measured->ample_bytes = shared->ample_bytes;
  LMDBIO_TRY_VOID(KeepAfter(std::move(status), job.wire, std::move(shared)));
  return measured;
}

Result<WireTable> ShareWireTable(const WireJob& job, WireTable table) {
  auto shared = std::make_unique<SharedTable>();
  shared->count = table.size();
  shared->table = std::move(table);
  const auto share = [&]() -> Status {
    LMDBIO_TRY_VOID(
        TreeOrChainBroadcast(job, std::as_writable_bytes(std::span(&shared->count, 1)), 0));
    if (shared->count > kRowCountMax) {
      return Fail(ErrorCode::kInvalidArgument,
                  "table of algorithms: more than 64 rows; use at most 64");
    }
    shared->table.resize(shared->count);
    return TreeOrChainBroadcast(job, std::as_writable_bytes(std::span(shared->table)), 0);
  };
  Status status = share();
  if (status) table = std::move(shared->table);
  LMDBIO_TRY_VOID(KeepAfter(std::move(status), job.wire, std::move(shared)));
  LMDBIO_TRY_VOID(CheckWireTable(table));
  return table;
}

}  // namespace lmdbio::sync
