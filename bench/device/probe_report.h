// bench/device/probe_report.h - the outcome of the device probe as a table and as JSON.
#ifndef LMDBIO_BENCH_DEVICE_PROBE_REPORT_H_
#define LMDBIO_BENCH_DEVICE_PROBE_REPORT_H_

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/device/probe_row.h"

namespace lmdbio::probe {

struct ProbeOutcome {
  nlohmann::ordered_json machine;  // the host and its state
  nlohmann::ordered_json device;   // as the driver has it
  std::vector<ProbeRow> rows;      // in the order of the report
  double seconds = 0;
};

// A line for each fact, then the rows under the titles of their questions.
std::string TableOf(const ProbeOutcome& outcome);

// {"machine": {...}, "device": {...}, "seconds": S, "rows": [{"question", "row", "state", and for a
// figure "unit", "median", "min", "max", "samples"; "note"}]}
std::string JsonOf(const ProbeOutcome& outcome);

// Replaces the file (docs/outputs.md).
// Errors: as file::WriteFileAtomically
Status WriteReportFile(const std::string& path, std::string_view text);

}  // namespace lmdbio::probe
#endif  // LMDBIO_BENCH_DEVICE_PROBE_REPORT_H_
