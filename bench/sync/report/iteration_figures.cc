#include "bench/sync/report/iteration_figures.h"

#include <algorithm>
#include <cmath>

namespace lmdbio::bench {
namespace {

std::vector<double> LastEnds(std::span<const double> times, size_t iteration_count) {
  std::vector<double> ends(times.size() / iteration_count);  // [ranks] of the iteration so far
  std::vector<double> joined;
  double last_end = 0;
  for (size_t i = 0; i < iteration_count; ++i) {
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      ends[rank] += times[rank * iteration_count + i];
    }
    const double end = *std::max_element(ends.begin(), ends.end());
    joined.push_back(end - last_end);
    last_end = end;
  }
  return joined;
}

}  // namespace

// A measured value, and no mean of two: a time between two modes never occurred.
double QuantileOf(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  const double place = std::ceil(q * static_cast<double>(values.size())) - 1;
  const auto nth = values.begin() + static_cast<std::ptrdiff_t>(std::max(0.0, place));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
}

std::vector<double> JoinRankTimes(RankJoin join, std::span<const double> times,
                                  size_t iteration_count) {
  if (join == RankJoin::kLastEnd) return LastEnds(times, iteration_count);
  std::vector<double> joined(times.begin(),
                             times.begin() + static_cast<std::ptrdiff_t>(iteration_count));
  for (size_t place = iteration_count; place < times.size(); ++place) {
    double& chosen = joined[place % iteration_count];
    chosen = join == RankJoin::kQuickest ? std::min(chosen, times[place])
                                         : std::max(chosen, times[place]);
  }
  return joined;
}

// From T = C + N less the time for which both are under way, alpha min(N, C).
std::optional<Overlap> OverlapOf(double iteration_ms, double computing_ms, double alone_ms) {
  if (!(iteration_ms > 0 && computing_ms > 0 && alone_ms > 0)) return std::nullopt;
  Overlap overlap;
  overlap.rho = alone_ms / computing_ms;
  const double shorter = std::min(overlap.rho, 1.0);
  overlap.alpha = (1 + overlap.rho - iteration_ms / computing_ms) / shorter;
  overlap.utilisation = 1 / (1 + overlap.rho - overlap.alpha * shorter);
  overlap.bound_ratio = iteration_ms / std::max(computing_ms, alone_ms);
  return overlap;
}

}  // namespace lmdbio::bench
