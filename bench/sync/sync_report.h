// bench/sync/sync_report.h - runs of variants as a table and as JSON.
#ifndef LMDBIO_BENCH_SYNC_SYNC_REPORT_H_
#define LMDBIO_BENCH_SYNC_SYNC_REPORT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/sync/report/iteration_figures.h"
#include "bench/sync/sync_run.h"

namespace lmdbio::bench {

struct IterationTimes {
  double p50_ms = 0;  // of all iterations
  double p95_ms = 0;
  double run_p50_min_ms = 0;  // the smallest and the largest median of a run
  double run_p50_max_ms = 0;
};

// The cost of the threads that a variant has made.
struct HelperCost {
  std::optional<double> idle_slowdown;  // of computing beside an idle variant, by repetition
  std::optional<double> idle_share;     // of a core, of the busiest rank, while idle
  double share = 0;                     // of a core, of the busiest rank
  double delay_ms = 0;                  // without a core, in an iteration, of the worst rank
  double trainer_delay_ms = 0;          // the same of all other threads
  double delay_us_a_start = 0;          // without a core, each time that it got one
  // Timed sleeps: time asleep less time asked for, of the rank with the largest; none: no sleeps.
  std::optional<double> late_p50_us;
  std::optional<double> late_p99_us;
};

// Involuntary context switches of an iteration, of the rank with the most.
struct SwitchCounts {
  double computing = 0;
  double input = 0;
  double helper = 0;  // with its yields
};

// The calls of rank 0 in an iteration.
struct IterationTraffic {
  double control_messages = 0;
  double mpi_calls = 0;
  double collectives = 0;
  double collective_bytes = 0;  // mean of a collective
  std::vector<uint64_t> sizes;  // smallest, median, largest collective; empty: unknown
};

// All clean runs of one variant together; all runs, if none is clean.
struct VariantSummary {
  std::string variant;
  std::string error;
  uint32_t run_count = 0;    // of training
  uint32_t clean_count = 0;  // of these, undisturbed by other processes
  IterationTimes times;
  HelperCost helper;
  SwitchCounts switches;
  double window_share = 0;  // of an iteration, as InputWindow; the mean of all ranks
  IterationTraffic traffic;
  std::optional<double> exposed_ms;     // p50 less the p50 of computing alone
  std::optional<double> alone_ms;       // p50 of the communication alone
  std::optional<double> overlap;        // 1 - exposed / alone
  std::optional<Overlap> coefficients;  // of the three medians
  std::optional<PredictionSummary> prediction;
  std::optional<double> ratio;  // of p50 to the p50 of the baseline

  bool is_clean() const { return clean_count > 0; }
};

// In the order of first appearance.
// baseline  a variant's name, or "" for none
std::vector<VariantSummary> Summarise(std::span<const RunResult> runs, const std::string& baseline);

// A Markdown table.
std::string Table(std::span<const VariantSummary> summaries);

nlohmann::ordered_json ToJson(const VariantSummary& summary);
nlohmann::ordered_json ToJson(const RunResult& run);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_SYNC_REPORT_H_
