#include "lmdbio/sync/schedule/transfer_log.h"

#include <algorithm>

namespace lmdbio::sync {

void TransferLog::Add(const TransferSample& sample) {
  const bool is_new = !times_.contains(sample.bytes);
  if (is_new && times_.size() >= kKeptSizes) return;
  std::deque<int64_t>& times = times_[sample.bytes];
  times.push_back(sample.ns);
  if (times.size() > kKeptTimes) times.pop_front();
}

std::vector<TransferSample> TransferLog::Merge(const std::vector<TransferSample>& trial) const {
  std::vector<TransferSample> merged;
  for (const auto& [bytes, times] : times_) {
    if (times.size() < kTimesMin) continue;
    std::vector<int64_t> sorted(times.begin(), times.end());
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    merged.push_back({bytes, *middle});
  }
  const size_t seen_count = merged.size();
  for (const TransferSample& tried : trial) {
    const bool is_seen =
        std::any_of(merged.begin(), merged.begin() + static_cast<ptrdiff_t>(seen_count),
                    [&](const TransferSample& seen) {
                      return seen.bytes <= 2 * tried.bytes && tried.bytes <= 2 * seen.bytes;
                    });
    if (!is_seen) merged.push_back(tried);
  }
  std::ranges::sort(merged, {}, &TransferSample::bytes);
  return merged;
}

}  // namespace lmdbio::sync
