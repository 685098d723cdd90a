#include "lmdbio/sync/over_wire/wire_search.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "lmdbio/sync/over_wire/wire_chunks.h"

namespace lmdbio::sync {
namespace {

constexpr std::array kAlgorithms = {WireAlgorithm::kDoubling, WireAlgorithm::kRing,
                                    WireAlgorithm::kHalving, WireAlgorithm::kDirect};
// The first call does not count: it opens connections, and the kernel enlarges socket buffers.
constexpr int kRoundsMin = 2;
// Of a call that only tells how long calls take. It opens the connections, too.
constexpr int kProbeRounds = 4;
// Short calls vary more, so one measurement repeats them for about this part of the whole time.
constexpr double kPartOfOneMeasurement = 1.0 / 64;
// Another chunk size or depth must take less than this part of the time of the best so far.
constexpr double kClearlyFaster = 0.97;
// Up to this factor, a longer time per byte counts as equal to the best.
constexpr double kAmpleLoss = 1.1;
// If the ring takes at most this factor of the best time at the largest measured size, it is the
// best for the larger sizes of a slow network.
constexpr double kRingLoss = 1.25;

// The longest memory range that a rank sends to one other rank in a step.
uint64_t LongestRun(WireAlgorithm algorithm, uint64_t bytes, int rank_count) {
  const auto ranks = static_cast<uint64_t>(rank_count);
  switch (algorithm) {
    case WireAlgorithm::kDoubling:
      return 0;  // the values travel with the agreement, not in chunks
    case WireAlgorithm::kHalving:
      return std::has_single_bit(ranks) ? (bytes + 1) / 2 : bytes;  // folding sends all values
    case WireAlgorithm::kRing:
    case WireAlgorithm::kDirect:
      break;
  }
  return (bytes + ranks - 1) / ranks;
}

// The part of a choice that has an effect on a call.
struct EffectOfChoice {
  WireAlgorithm algorithm;
  uint64_t message_bytes;
  uint64_t depth;
  bool operator==(const EffectOfChoice&) const = default;
};

EffectOfChoice EffectOf(const WireChoice& choice, uint64_t bytes, int rank_count) {
  const uint64_t run = LongestRun(choice.algorithm, bytes, rank_count);
  uint64_t chunk_bytes = choice.chunk_bytes;
  if (choice.algorithm == WireAlgorithm::kDirect) {
    chunk_bytes = std::min(chunk_bytes, DirectChunkBytesMax(rank_count, choice.chunk_depth));
  }
  const uint64_t message_bytes = std::min(WholeElements(chunk_bytes), run);
  const uint64_t count = message_bytes == 0 ? 0 : ChunkCount(run, message_bytes);
  return {choice.algorithm, message_bytes, std::min<uint64_t>(choice.chunk_depth, count)};
}

struct Best {
  WireChoice choice;
  WireSeconds time = WireSeconds(0);
};

// The geometric mean of this size and the next one.
uint64_t BoundBehind(size_t i) {
  if (i + 1 == kTriedBytes.size()) return kAnyBytes;
  return static_cast<uint64_t>(
      std::sqrt(static_cast<double>(kTriedBytes[i]) * static_cast<double>(kTriedBytes[i + 1])));
}

// The smallest measured size whose time per byte is close to the best.
// times  [measured sizes]
uint64_t AmpleBytes(const std::vector<WireSeconds>& times) {
  // The time per byte mostly falls with the size, so a search that ended early has not seen the
  // best.
  if (kTriedBytes[times.size() - 1] < kUsualAmpleBytes) return kUsualAmpleBytes;
  const auto cost = [&](size_t i) {
    return times[i].count() / static_cast<double>(kTriedBytes[i]);
  };
  double least = cost(0);
  for (size_t i = 1; i < times.size(); ++i) least = std::min(least, cost(i));
  size_t first = 0;
  while (cost(first) > kAmpleLoss * least) ++first;
  return kTriedBytes[first];
}

class WireSearch {
 public:
  WireSearch(const WireSearchSpace& space, WireSeconds time, const TimedCalls& calls,
             const WireStopwatch& elapsed)
      : space_(space), time_(time), calls_(calls), elapsed_(elapsed) {
    if (space.chunk_bytes > 0) best_.choice.chunk_bytes = space.chunk_bytes;
    if (space.chunk_depth > 0) best_.choice.chunk_depth = space.chunk_depth;
  }

  Result<MeasuredWire> Run();

 private:
  std::vector<WireAlgorithm> AlgorithmsFor(uint64_t bytes) const;
  int RoundsFor(WireSeconds expected) const;
  bool HasTimeFor(WireSeconds expected) const { return elapsed_() + expected <= time_; }
  Status MeasureAlgorithms(uint64_t bytes, WireSeconds expected);
  Status MeasureVariants(uint64_t bytes);
  Status Challenge(uint64_t bytes, const WireChoice& choice);
  WireTable TableOf(const std::vector<Best>& rows) const;

  const WireSearchSpace& space_;
  const WireSeconds time_;
  const TimedCalls& calls_;
  const WireStopwatch& elapsed_;
  Best best_;                      // of the size under way, or of the last one
  Best ring_;                      // the same, by the ring alone
  std::vector<WireChoice> tried_;  // at the size under way
};

std::vector<WireAlgorithm> WireSearch::AlgorithmsFor(uint64_t bytes) const {
  if (space_.algorithm) return {*space_.algorithm};
  std::vector<WireAlgorithm> chosen;
  for (const WireAlgorithm algorithm : kAlgorithms) {
    if (algorithm == WireAlgorithm::kDoubling && bytes > kTriedDoublingBytesMax) continue;
    if (algorithm == WireAlgorithm::kDirect && space_.rank_count > kDirectRanksMax) continue;
    chosen.push_back(algorithm);
  }
  return chosen;
}

int WireSearch::RoundsFor(WireSeconds expected) const {
  if (expected.count() <= 0) return kTriedRoundsMax;
  const double rounds = time_ * kPartOfOneMeasurement / expected;
  return static_cast<int>(std::clamp<double>(rounds, kRoundsMin, kTriedRoundsMax));
}

Status WireSearch::MeasureAlgorithms(uint64_t bytes, WireSeconds expected) {
  Best best;
  for (const WireAlgorithm algorithm : AlgorithmsFor(bytes)) {
    WireChoice choice = best_.choice;
    choice.algorithm = algorithm;
    LMDBIO_TRY(const WireSeconds taken, calls_(bytes, choice, RoundsFor(expected)));
    tried_.push_back(choice);
    if (tried_.size() == 1 || taken < best.time) best = {choice, taken};
    if (algorithm == WireAlgorithm::kRing) ring_ = {choice, taken};
  }
  best_ = best;
  return {};
}

Status WireSearch::MeasureVariants(uint64_t bytes) {
  const auto challenge = [&](uint64_t chunk_bytes, uint32_t depth) {
    WireChoice choice = best_.choice;
    if (space_.chunk_bytes == 0) choice.chunk_bytes = chunk_bytes;
    if (space_.chunk_depth == 0) choice.chunk_depth = depth;
    return Challenge(bytes, choice);
  };
  for (const uint64_t chunk_bytes : kTriedChunkBytes) {
    LMDBIO_TRY_VOID(challenge(chunk_bytes, best_.choice.chunk_depth));
  }
  for (const uint32_t depth : kTriedDepths) {
    LMDBIO_TRY_VOID(challenge(best_.choice.chunk_bytes, depth));
  }
  // A smaller chunk may be better with another depth only. The time for all pairs is there while
  // calls are short; then most of the pairs make the same messages.
  if (RoundsFor(best_.time) == kRoundsMin) return {};
  for (const uint64_t chunk_bytes : kTriedChunkBytes) {
    for (const uint32_t depth : kTriedDepths) LMDBIO_TRY_VOID(challenge(chunk_bytes, depth));
  }
  return {};
}

Status WireSearch::Challenge(uint64_t bytes, const WireChoice& choice) {
  const auto is_same = [&](const WireChoice& tried) {
    return IsSameCall(tried, choice, bytes, space_.rank_count);
  };
  if (std::ranges::any_of(tried_, is_same)) return {};
  const int rounds = RoundsFor(best_.time);
  if (!HasTimeFor(rounds * best_.time)) return {};
  LMDBIO_TRY(const WireSeconds taken, calls_(bytes, choice, rounds));
  tried_.push_back(choice);
  if (taken < kClearlyFaster * best_.time) best_ = {choice, taken};
  return {};
}

WireTable WireSearch::TableOf(const std::vector<Best>& rows) const {
  WireTable table;
  for (size_t i = 0; i < rows.size(); ++i) {
    WireChoice row = rows[i].choice;
    row.bytes_max = BoundBehind(i);
    const auto is_like = [&](const WireChoice& last) {
      return row.algorithm == last.algorithm && row.chunk_bytes == last.chunk_bytes &&
             row.chunk_depth == last.chunk_depth;
    };
    if (!table.empty() && is_like(table.back())) table.pop_back();
    table.push_back(row);
  }
  // The time was over before a large size. Where the rate of the network decides, no algorithm
  // sends fewer bytes than the ring, and none keeps all links as busy. Doubling takes no large
  // calls at all.
  const bool is_early = rows.size() < kTriedBytes.size() && !space_.algorithm &&
                        table.back().algorithm != WireAlgorithm::kRing;
  if (table.back().algorithm == WireAlgorithm::kDoubling ||
      (is_early && ring_.time <= kRingLoss * best_.time)) {
    WireChoice large = table.back();
    large.algorithm = WireAlgorithm::kRing;
    table.push_back(large);
  }
  table.back().bytes_max = kAnyBytes;
  return table;
}

Result<MeasuredWire> WireSearch::Run() {
  std::vector<Best> rows;
  std::vector<WireSeconds> times;
  WireChoice probed = best_.choice;
  probed.algorithm = AlgorithmsFor(kTriedBytes[0]).front();
  LMDBIO_TRY(WireSeconds expected, calls_(kTriedBytes[0], probed, kProbeRounds));
  for (const uint64_t bytes : kTriedBytes) {
    if (!rows.empty()) {
      // The time grows with the bytes at most.
      const uint64_t factor = bytes / kTriedBytes[rows.size() - 1];
      expected = best_.time * static_cast<double>(factor);
      if (!HasTimeFor(expected * kRoundsMin * static_cast<double>(AlgorithmsFor(bytes).size()))) {
        break;
      }
    }
    tried_.clear();
    LMDBIO_TRY_VOID(MeasureAlgorithms(bytes, expected));
    LMDBIO_TRY_VOID(MeasureVariants(bytes));
    rows.push_back(best_);
    times.push_back(best_.time);
  }
  return MeasuredWire{.table = TableOf(rows),
                      .ample_bytes = AmpleBytes(times),
                      .measured_bytes = kTriedBytes[rows.size() - 1]};
}

}  // namespace

bool IsSameCall(const WireChoice& one, const WireChoice& other, uint64_t bytes, int rank_count) {
  return EffectOf(one, bytes, rank_count) == EffectOf(other, bytes, rank_count);
}

Result<MeasuredWire> SearchWire(const WireSearchSpace& space, WireSeconds time,
                                const TimedCalls& calls, const WireStopwatch& elapsed) {
  return WireSearch(space, time, calls, elapsed).Run();
}

}  // namespace lmdbio::sync
