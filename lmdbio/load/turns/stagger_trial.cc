#include "lmdbio/load/turns/stagger_trial.h"

#include <algorithm>

namespace lmdbio::load {
namespace {

// The required advantage of tokens. A smaller difference may be measurement noise.
constexpr double kWorthIt = 1.05;

}  // namespace

size_t ChooseStaggerWay(const StaggerRates& rates, size_t way_count, uint64_t reader_count) {
  if (rates.unclear_count > reader_count / 2) return 0;
  // The first token count that is chosen must beat free reading by the factor. Among token counts
  // the greater rate wins.
  size_t best = 0;
  double least = rates.bytes_per_s[0] * kWorthIt;
  for (size_t way = 1; way < way_count; ++way) {
    if (rates.bytes_per_s[way] <= least) continue;
    best = way;
    least = rates.bytes_per_s[way];
  }
  return best;
}

std::vector<uint32_t> TokenCountsToTry(uint64_t reader_count, size_t count_max) {
  std::vector<uint32_t> counts;
  // With 0 tokens no reader could ever read.
  for (uint64_t count = reader_count / 2; count > 0 && counts.size() < count_max; count /= 2) {
    counts.push_back(static_cast<uint32_t>(count));
  }
  return counts;
}

size_t StaggerTrial::WayOf(uint64_t slot) const {
  if (slot < kWarmSlots) return 0;
  const uint64_t way = (slot - kWarmSlots) / kSlotsPerWay;
  return way < way_count_ ? static_cast<size_t>(way) : 0;
}

// Measures the rate of each way over kSlotsPerWay slots, after kWarmSlots slots that do not count.
// The rate is bytes by reading time; waits for trainers are subtracted. If less than half of the
// time is left after that, the measurement is marked as unclear.
void StaggerTrial::SlotDone(uint64_t bytes, double now_s) {
  if (IsOver()) return;
  way_bytes_ += bytes;
  if (++done_count_ < kWarmSlots) return;
  const uint64_t measured = done_count_ - kWarmSlots;
  if (measured % kSlotsPerWay != 0) return;
  if (measured > 0) {
    const double seconds = std::max(now_s - way_began_s_, 1e-9);
    const double reading_s = std::max(seconds - way_waited_s_, 1e-9);
    rates_.bytes_per_s[measured / kSlotsPerWay - 1] = static_cast<double>(way_bytes_) / reading_s;
    if (reading_s < seconds / 2) is_unclear_ = true;
  }
  way_began_s_ = now_s;
  way_bytes_ = 0;
  way_waited_s_ = 0;
}

std::optional<StaggerRates> StaggerTrial::TakeRates() {
  if (!IsOver() || is_taken_) return std::nullopt;
  is_taken_ = true;
  rates_.unclear_count = is_unclear_ ? 1 : 0;
  return rates_;
}

}  // namespace lmdbio::load
