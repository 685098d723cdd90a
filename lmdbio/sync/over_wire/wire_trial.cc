#include "lmdbio/sync/over_wire/wire_trial.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "lmdbio/base/kept_memory.h"

namespace lmdbio::sync {
namespace {

constexpr uint64_t kRowCountMax = 64;

// The next measurement, from rank 0.
struct TrialCommand {
  enum class TrialKind : uint64_t { kTry = 1, kEnd = 2 };
  TrialKind kind = TrialKind::kEnd;
  uint64_t bytes = 0;
  uint64_t rounds = 0;
  WireChoice choice;
};

Status Share(const WireJob& job, TrialCommand& order) {
  return TreeOrChainBroadcast(job, std::as_writable_bytes(std::span(&order, 1)), 0);
}

class WireTrial {
 public:
  WireTrial(const WireJob& job, const TriedAllReduce& all_reduce, const TrialClock& clock)
      : job_(job), all_reduce_(all_reduce), clock_(clock) {}

  // On rank 0, as TimedCalls.
  Result<WireSeconds> Try(uint64_t bytes, const WireChoice& choice, int rounds) {
    order_ = {.kind = TrialCommand::TrialKind::kTry,
              .bytes = bytes,
              .rounds = static_cast<uint64_t>(rounds),
              .choice = choice};
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
          order.rounds < 2 || order.rounds > kTriedRoundsMax ||
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
  Result<WireSeconds> Run(const TrialCommand& order) {
    // The values are zeros, and sums of zeros stay zeros however often they are reduced.
    values_.resize(std::max(values_.size(), order.bytes / sizeof(float)));
    const Values values{.data = reinterpret_cast<std::byte*>(values_.data()),
                        .count = order.bytes / sizeof(float),
                        .type = DataType::kFloat32};
    std::vector<WireSeconds> times;
    for (uint64_t round = 0; round < order.rounds; ++round) {
      const auto begin = clock_();
      LMDBIO_TRY_VOID(all_reduce_(order.choice, values));
      if (round > 0) times.emplace_back(clock_() - begin);
    }
    // The median, because the least time is that of a call in which no rank waited for a core. With
    // more ranks than cores most calls do.
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
    std::nth_element(times.begin(), middle, times.end());
    return *middle;
  }

  const WireJob& job_;
  const TriedAllReduce& all_reduce_;
  const TrialClock& clock_;
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
  std::array<uint64_t, 2> sizes = {};  // the ample and the largest measured one
  WireTable table;
};

Result<MeasuredWire> Lead(WireTrial& trial, const WireSearchSpace& space,
                          std::chrono::milliseconds trial_time, const TrialClock& clock) {
  const auto begin = clock();
  const auto calls = [&trial](uint64_t bytes, const WireChoice& choice, int rounds) {
    return trial.Try(bytes, choice, rounds);
  };
  const auto elapsed = [&clock, begin]() -> WireSeconds { return clock() - begin; };
  LMDBIO_TRY(MeasuredWire measured, SearchWire(space, trial_time, calls, elapsed));
  LMDBIO_TRY_VOID(trial.End());
  return measured;
}

}  // namespace

Result<MeasuredWire> MeasureWire(const WireJob& job, const WireSearchSpace& space,
                                 std::chrono::milliseconds trial_time,
                                 const TriedAllReduce& all_reduce, const TrialClock& clock) {
  auto trial = std::make_unique<WireTrial>(job, all_reduce, clock);
  Result<MeasuredWire> measured = MeasuredWire();
  if (job.wire.rank() == 0) {
    measured = Lead(*trial, space, trial_time, clock);
  } else if (Status followed = trial->Follow(); !followed) {
    measured = Fail(std::move(followed).error());
  }
  if (!measured && job.wire.writes_after_failure()) KeepForever(std::move(trial));
  if (!measured) return measured;
  LMDBIO_TRY(measured->table, ShareWireTable(job, std::move(measured->table)));
  auto shared = std::make_unique<SharedTable>();
  shared->sizes = {measured->ample_bytes, measured->measured_bytes};
  Status status = TreeOrChainBroadcast(job, std::as_writable_bytes(std::span(shared->sizes)), 0);
  if (status) {
    measured->ample_bytes = shared->sizes[0];
    measured->measured_bytes = shared->sizes[1];
  }
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
