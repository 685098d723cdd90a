// bench/loader/bench_report.h - runs of the microbenchmark as a table, as JSON and as a picture.
#ifndef LMDBIO_BENCH_LOADER_BENCH_REPORT_H_
#define LMDBIO_BENCH_LOADER_BENCH_REPORT_H_

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/loader/bench_read.h"
#include "lmdbio/base/status.h"

namespace lmdbio::tools {

// One pass of one strategy, and the raw rate that was measured immediately before.
struct BenchRun {
  std::string strategy;
  int ranks = 1;
  std::string order;
  uint64_t global_batch_size = 0;
  std::string options;  // load::OptionsJson of the effective options
  ReadResult read;
  uint64_t page_bytes = 0;     // bytes of the pages of the delivered records
  double raw_bytes_per_s = 0;  // 0: not measured

  double records_per_s() const;
  double payload_bytes_per_s() const;
  double page_bytes_per_s() const;
  double raw_fraction() const;  // page_bytes_per_s as a share of the raw rate
};

// Sums and extremes over the ranks, and the times of each rank (RankTimes) as "by_rank".
nlohmann::ordered_json ToJson(const BenchRun& run);

// Medians of the runs of each strategy with minimum and maximum, in order of first appearance.
std::string Table(const std::vector<BenchRun>& runs);

// An SVG picture: a bar of median MB/s of pages for each strategy, with the raw rate as a line.
std::string Plot(const std::vector<BenchRun>& runs, std::string_view title);

// The q-th quantile (0 to 1) of `values`; 0 without values.
double Quantile(std::vector<float> values, double q);

// Errors: kPermission, kIo, ...; the message names the path
Status WriteText(const std::string& path, std::string_view text);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_REPORT_H_
