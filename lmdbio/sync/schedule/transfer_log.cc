#include "lmdbio/sync/schedule/transfer_log.h"

#include <algorithm>

namespace lmdbio::sync {
namespace {

// So that no product of a time and a proportion overflows.
constexpr int64_t kCorrectionMax = 1'000'000;

}  // namespace

void TransferLog::Add(const TransferSample& sample, int64_t rest_ns) {
  rested_ns_ = std::min(rested_ns_ + rest_ns, kRestMaxNs);
  const bool is_rested = rested_ns_ > sample.ns / kRestDivisor;
  rested_ns_ -= std::min(rested_ns_, sample.ns);
  if (is_rested) return;
  const bool is_new = !times_.contains(sample.bytes);
  if (is_new && times_.size() >= kKeptSizes) return;
  std::deque<int64_t>& times = times_[sample.bytes];
  times.push_back(sample.ns);
  if (times.size() > kKeptTimes) times.pop_front();
}

std::vector<TransferSample> TransferLog::Medians() const {
  std::vector<TransferSample> medians;
  for (const auto& [bytes, times] : times_) {
    if (times.size() < kTimesMin) continue;
    std::vector<int64_t> sorted(times.begin(), times.end());
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    medians.push_back({bytes, *middle});
  }
  return medians;
}

std::vector<TransferSample> TransferLog::Merge(const std::vector<TransferSample>& trial) const {
  std::vector<TransferSample> merged = Medians();
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

std::vector<TransferSample> TransferLog::Correct(std::vector<TransferSample> trial) const {
  const Result<TransferModel> model = TransferModel::FromSamples(trial);
  if (!model) return trial;
  int64_t seen_ns = 0;
  int64_t tried_ns = 0;
  for (const TransferSample& seen : Medians()) {
    seen_ns = AddNs(seen_ns, seen.ns);
    tried_ns = AddNs(tried_ns, model->TimeOf(seen.bytes));
  }
  if (tried_ns == 0) return trial;
  constexpr int64_t kSumMax = TransferModel::kPointNsMax;
  const int64_t permille =
      std::min(std::min(seen_ns, kSumMax) * 1000 / std::min(tried_ns, kSumMax), kCorrectionMax);
  for (TransferSample& sample : trial) {
    const int64_t ns = sample.ns / 1000 * permille + sample.ns % 1000 * permille / 1000;
    sample.ns = std::clamp<int64_t>(ns, 1, TransferModel::kPointNsMax);
  }
  return trial;
}

}  // namespace lmdbio::sync
