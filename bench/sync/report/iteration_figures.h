// bench/sync/report/iteration_figures.h - the time of an iteration, and the overlap that it shows.
#ifndef LMDBIO_BENCH_SYNC_REPORT_ITERATION_FIGURES_H_
#define LMDBIO_BENCH_SYNC_REPORT_ITERATION_FIGURES_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace lmdbio::bench {

// The q-th quantile (0 to 1): the smallest value that so many are not above; 0 of none.
double QuantileOf(std::vector<double> values, double q);

// How the times of ranks become one time of an iteration.
enum class RankJoin {
  kSlowest,  // of the rank that took longest: for ranks that do not wait for each other
  // From the end of the iteration before, on the rank that ended it last, to the end of this one on
  // the rank that ends this one last. So the sum over all iterations is the time of the run, also
  // if one rank is late in one iteration, and others wait for it in the next one.
  kLastEnd,
  kQuickest,  // of the rank that took the shortest time: it came last, so it waited for nobody
};

// times            [ranks * iterations] of rank 0, then of rank 1, ... All ranks begin together
// iteration_count  [> 0]
// Returns [iterations].
std::vector<double> JoinRankTimes(RankJoin join, std::span<const double> times,
                                  size_t iteration_count);

// Source: Hashemi et al. 3.1.
struct Overlap {
  double rho = 0;  // time of the communication by itself / time of computing by itself
  // The overlap coefficient: the time for which both were under way, as a share of the shorter one.
  // 1: the shorter one is hidden. Negative: both together take longer than one after the other
  double alpha = 0;
  double utilisation = 0;  // of what computes: 1 / (1 + rho - alpha min(rho, 1))
  double bound_ratio = 0;  // the iteration / the ideal bound: the longer one of both
};

// Nothing if a time is not positive.
std::optional<Overlap> OverlapOf(double iteration_ms, double computing_ms, double alone_ms);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_REPORT_ITERATION_FIGURES_H_
