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
constexpr double kPartOfOneMeasurement = 1.0 / 128;
// Another program may disturb all calls of a measurement. So algorithms are measured in turn, so
// often, and the least time counts. After the first pass those that take longer than kFarFactor of
// the least time are left out. A further pass takes at most kPartOfOnePass of the whole time.
constexpr int kPasses = 3;
constexpr double kFarFactor = 4;
constexpr double kPartOfOnePass = 1.0 / 16;
// Another chunk size or depth must take less than this part of the time of the best so far.
constexpr double kClearlyFaster = 0.97;
// Up to this factor, a longer time per byte counts as equal to the best.
constexpr double kAmpleLoss = 1.1;
// Where the rate of the network decides, no algorithm sends fewer bytes than the ring, and none
// keeps each connection as busy: TCP slows down on one that pauses, which a short trial does not
// show. So from this size on the ring is chosen if it takes at most this factor of the best time.
constexpr uint64_t kRateBytes = 256 << 10;
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
      : space_(space), time_(time), calls_(calls), elapsed_(elapsed) {}

  Result<MeasuredWire> Run();

 private:
  std::vector<WireAlgorithm> AlgorithmsFor(uint64_t bytes) const;
  int RoundsFor(WireSeconds expected) const;
  bool HasTimeFor(WireSeconds expected) const { return elapsed_() + expected <= time_; }
  Status MeasureAlgorithms(uint64_t bytes, WireSeconds expected);
  Status MeasureAgain(uint64_t bytes, std::vector<Best>& all);
  Status MeasureVariants(uint64_t bytes, const WireChoice& previous);
  Status Challenge(uint64_t bytes, const WireChoice& choice);
  WireChoice Usual() const;
  WireTable TableOf(const std::vector<Best>& rows) const;

  const WireSearchSpace& space_;
  const WireSeconds time_;
  const TimedCalls& calls_;
  const WireStopwatch& elapsed_;
  Best best_;                      // of the size under way, or of the last one
  bool is_ring_close_ = false;     // to the best algorithm, at the same size
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

// The chunks that another choice must beat at each size.
WireChoice WireSearch::Usual() const {
  WireChoice usual;
  if (space_.chunk_bytes > 0) usual.chunk_bytes = space_.chunk_bytes;
  if (space_.chunk_depth > 0) usual.chunk_depth = space_.chunk_depth;
  return usual;
}

// Further passes over the algorithms that may be the best.
Status WireSearch::MeasureAgain(uint64_t bytes, std::vector<Best>& all) {
  for (int pass = 1; pass < kPasses; ++pass) {
    const WireSeconds far = kFarFactor * best_.time;
    const auto is_near = [far](const Best& one) { return one.time <= far; };
    const auto near_count = std::ranges::count_if(all, is_near);
    const int rounds = RoundsFor(best_.time);
    const WireSeconds pass_time = rounds * static_cast<double>(near_count) * best_.time;
    if (near_count < 2 || pass_time > kPartOfOnePass * time_) return {};
    for (Best& one : all) {
      if (!is_near(one)) continue;
      LMDBIO_TRY(const WireSeconds taken, calls_(bytes, one.choice, rounds));
      one.time = std::min(one.time, taken);
    }
    best_ = *std::ranges::min_element(all, {}, &Best::time);
  }
  return {};
}

Status WireSearch::MeasureAlgorithms(uint64_t bytes, WireSeconds expected) {
  std::vector<Best> all;
  for (const WireAlgorithm algorithm : AlgorithmsFor(bytes)) {
    all.push_back({.choice = Usual()});
    all.back().choice.algorithm = algorithm;
    tried_.push_back(all.back().choice);
  }
  for (Best& one : all) {
    LMDBIO_TRY(one.time, calls_(bytes, one.choice, RoundsFor(expected)));
  }
  best_ = *std::ranges::min_element(all, {}, &Best::time);
  LMDBIO_TRY_VOID(MeasureAgain(bytes, all));
  const auto ring = std::ranges::find(all, WireAlgorithm::kRing,
                                      [](const Best& one) { return one.choice.algorithm; });
  if (ring == all.end()) return {};
  is_ring_close_ = ring->time <= kRingLoss * best_.time;
  if (is_ring_close_ && bytes >= kRateBytes) best_ = *ring;
  return {};
}

// previous  the best choice of the smaller size
Status WireSearch::MeasureVariants(uint64_t bytes, const WireChoice& previous) {
  const auto challenge = [&](uint64_t chunk_bytes, uint32_t depth) {
    WireChoice choice = best_.choice;
    if (space_.chunk_bytes == 0) choice.chunk_bytes = chunk_bytes;
    if (space_.chunk_depth == 0) choice.chunk_depth = depth;
    return Challenge(bytes, choice);
  };
  LMDBIO_TRY_VOID(challenge(previous.chunk_bytes, previous.chunk_depth));
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
  LMDBIO_TRY(WireSeconds taken, calls_(bytes, choice, rounds));
  tried_.push_back(choice);
  const auto is_better = [&] { return taken < kClearlyFaster * best_.time; };
  if (!is_better() || !HasTimeFor(2 * rounds * best_.time)) return {};
  // Perhaps only the measurement of the best was disturbed, so both are measured again.
  LMDBIO_TRY(const WireSeconds best_again, calls_(bytes, best_.choice, rounds));
  LMDBIO_TRY(const WireSeconds taken_again, calls_(bytes, choice, rounds));
  best_.time = std::min(best_.time, best_again);
  taken = std::min(taken, taken_again);
  if (is_better()) best_ = {choice, taken};
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
  // The time was over before a large size. Doubling takes no large calls at all.
  const bool is_early = rows.size() < kTriedBytes.size() && !space_.algorithm &&
                        table.back().algorithm != WireAlgorithm::kRing;
  if (table.back().algorithm == WireAlgorithm::kDoubling || (is_early && is_ring_close_)) {
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
  WireChoice probed = Usual();
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
    const WireChoice previous = rows.empty() ? Usual() : rows.back().choice;
    LMDBIO_TRY_VOID(MeasureAlgorithms(bytes, expected));
    LMDBIO_TRY_VOID(MeasureVariants(bytes, previous));
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
