// bench/bundle/bundle_report.h - the rows of all parts, as a table and as JSON.
#ifndef LMDBIO_BENCH_BUNDLE_BUNDLE_REPORT_H_
#define LMDBIO_BENCH_BUNDLE_BUNDLE_REPORT_H_

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace lmdbio::bundle {

using Row = nlohmann::ordered_json;  // at least "id", "name", "state", "note"

Row RowOf(std::string id, std::string name, std::string state, std::string note);

// The rows among lines of output, and the objects without an id. Other text is left out.
struct Rows {
  std::vector<Row> rows;
  std::vector<nlohmann::ordered_json> facts;
};
Rows RowsOfLines(std::string_view text);
// Of the report of the probe. Its rows are answers: "passed", "measured", "left out", "failed".
Rows RowsOfProbe(std::string_view report);

// Failed, or a bar that is not held.
bool HasFailed(const Row& row);

// A part that has ended, or was left out.
struct PartOutcome {
  std::string name;
  std::string end;  // "exit code 0", "ended by signal 9 (Killed)", "left out"
  double seconds = 0;
  Rows told;
};

struct BundleOutcome {
  nlohmann::ordered_json machine;
  std::vector<PartOutcome> parts;
  double seconds = 0;

  // Whether a row has passed or was measured, and none has failed.
  bool HasHeld() const;
};

// A line for each row under the name of its part. Then the rows that have failed once more, and a
// line with the result.
std::string TableOf(const BundleOutcome& outcome);

// {"machine", "held", "seconds", "parts": [{"part", "end", "seconds", "facts", "rows"}]}
std::string JsonOf(const BundleOutcome& outcome);

}  // namespace lmdbio::bundle
#endif  // LMDBIO_BENCH_BUNDLE_BUNDLE_REPORT_H_
