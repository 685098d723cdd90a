// bench/loader/bench_report.h - runs of the microbenchmark as a table, as JSON, as a picture.
#ifndef LMDBIO_BENCH_LOADER_BENCH_REPORT_H_
#define LMDBIO_BENCH_LOADER_BENCH_REPORT_H_

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/loader/bench_read.h"
#include "lmdbio/base/status.h"

namespace lmdbio::tools {

// One pass of one strategy, and the raw rate measured right before it.
struct BenchRun {
  std::string strategy;
  int ranks = 1;
  std::string order;
  uint64_t batch_size = 0;
  ReadResult read;
  uint64_t page_bytes = 0;     // of the pages that hold the delivered records
  double raw_bytes_per_s = 0;  // 0: not measured

  double records_per_s() const;
  double payload_bytes_per_s() const;
  double page_bytes_per_s() const;
  double raw_fraction() const;  // of page_bytes_per_s
};

// What holds for all runs: machine, kernel, commit, cache state, MPI's wait mode, command line.
nlohmann::ordered_json DescribeMachine();

// Sums and extremes over ranks, and the times of each rank (RankTimes) under "by_rank".
nlohmann::ordered_json ToJson(const BenchRun& run);

// For each strategy, in order of first appearance, medians of its runs with minimum and maximum.
std::string Table(const std::vector<BenchRun>& runs);

// Bars of median records/s for each strategy, with the raw rate as a line. SVG.
std::string Plot(const std::vector<BenchRun>& runs, std::string_view title);

// The q-th quantile (0 to 1) of `values`; 0 of none.
double Quantile(std::vector<float> values, double q);

// Errors: kPermission, kIo, ...; the message names the path
Status WriteText(const std::string& path, std::string_view text);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_REPORT_H_
