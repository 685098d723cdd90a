// bench/sync/sync_report.h - runs of variants as a table and as JSON.
#ifndef LMDBIO_BENCH_SYNC_SYNC_REPORT_H_
#define LMDBIO_BENCH_SYNC_SYNC_REPORT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/sync/sync_run.h"

namespace lmdbio::bench {

// What all clean runs of one variant come to; where no run is clean, all runs.
struct VariantSummary {
  std::string variant;
  std::string error;
  uint32_t run_count = 0;    // of training
  uint32_t clean_count = 0;  // of these, without a neighbour
  double p50_ms = 0;         // of all iterations
  double p95_ms = 0;
  double run_p50_min_ms = 0;  // of the runs' medians
  double run_p50_max_ms = 0;
  std::optional<double> exposed_ms;         // p50 less that of computing only
  std::optional<double> alone_ms;           // p50 of the communication alone
  std::optional<double> overlap;            // 1 - exposed / alone
  std::optional<double> idle_slowdown;      // of computing with it idle, by repetition
  std::optional<double> idle_helper_share;  // of a core, the busiest rank's, while idle
  double helper_share = 0;                  // of a core, the busiest rank's
  double helper_delay_ms = 0;               // for each iteration, the rank where it is most
  double trainer_delay_ms = 0;
  double control_messages = 0;  // for each iteration, of rank 0
  double mpi_calls = 0;
  double collectives = 0;
  double collective_bytes = 0;  // mean of a collective
  std::vector<uint64_t> sizes;  // least, median, greatest; empty: not known
  std::optional<double> ratio;  // of p50 to the baseline's

  bool is_clean() const { return clean_count > 0; }
};

// In the order of first appearance.
// baseline  a variant's name, or "" for none
std::vector<VariantSummary> Summarise(std::span<const RunResult> runs, const std::string& baseline);

// A Markdown table.
std::string Table(std::span<const VariantSummary> summaries);

nlohmann::ordered_json ToJson(const VariantSummary& summary);
nlohmann::ordered_json ToJson(const RunResult& run);

// The q-th quantile (0 to 1): the smallest value that so many are not above; 0 of none.
double QuantileOf(std::vector<double> values, double q);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_SYNC_SYNC_REPORT_H_
