#include "lmdbio/trace/stall_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lmdbio::trace {
namespace {

constexpr size_t kRanksMax = 16;  // named in a line

std::string RanksText(const std::vector<int>& ranks) {
  if (ranks.empty()) return "other ranks";
  const size_t named = std::min(ranks.size(), kRanksMax);
  const std::span<const int> first(ranks.data(), named);
  std::string text =
      fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(first, ", "));
  if (ranks.size() > named) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

std::string StallText(const PendingTensor& tensor, StallClock::time_point now) {
  const std::chrono::duration<double> waited = now - tensor.since;
  if (!tensor.is_ready) {
    return fmt::format(
        "tensor '{}' (number {}) has waited {:.1f} s: submitted, not ready on its "
        "stream",
        tensor.name, tensor.number, waited.count());
  }
  return fmt::format("tensor '{}' (number {}) has waited {:.1f} s for {}", tensor.name,
                     tensor.number, waited.count(), RanksText(tensor.missing_ranks));
}

}  // namespace

StallClock::time_point StallWatch::DueAt(const PendingTensor& tensor) const {
  const auto last = reported_at_.find(Key(tensor.name, tensor.number));
  return (last == reported_at_.end() ? tensor.since : last->second) + limits_.report;
}

StallFindings StallWatch::Look(std::span<const PendingTensor> pending, StallClock::time_point now) {
  StallFindings findings;
  // Longest wait first: the lines name the oldest tensors, and only the oldest can pass the limit
  // first.
  std::vector<size_t> order(pending.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, {}, [&](size_t i) { return pending[i].since; });
  // Built anew from the pending tensors, so tensors that are done leave no entry behind.
  std::map<Key, StallClock::time_point> reported_at;
  size_t due_count = 0;
  for (const size_t i : order) {
    const PendingTensor& tensor = pending[i];
    const Key key(tensor.name, tensor.number);
    const bool is_due = limits_.report.count() > 0 && now >= DueAt(tensor);
    const auto last = reported_at_.find(key);
    if (is_due) {
      reported_at[key] = now;
    } else if (last != reported_at_.end()) {
      reported_at[key] = last->second;
    }
    // Tensors beyond the last line count as reported, or they would be due at every call.
    if (!is_due || ++due_count > kLinesMax) continue;
    findings.lines.push_back(StallText(tensor, now));
    findings.reported.push_back(i);
  }
  reported_at_ = std::move(reported_at);
  if (due_count > kLinesMax) {
    findings.lines.push_back(fmt::format("and {} more", due_count - kLinesMax));
  }
  if (limits_.limit.count() > 0 && !order.empty()) {
    const PendingTensor& oldest = pending[order.front()];
    if (now - oldest.since >= limits_.limit) {
      const std::chrono::duration<double> limit = limits_.limit;
      findings.status =
          Fail(ErrorCode::kPeerFailed,
               fmt::format("{}: the limit is {:.1f} s", StallText(oldest, now), limit.count()));
    }
  }
  return findings;
}

}  // namespace lmdbio::trace
