// bench/on_device/figure_report.h - the rows of a program, written as soon as they are known.
#ifndef LMDBIO_BENCH_ON_DEVICE_FIGURE_REPORT_H_
#define LMDBIO_BENCH_ON_DEVICE_FIGURE_REPORT_H_

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/on_device/figure_row.h"
#include "lmdbio/base/status.h"

namespace lmdbio::figures {

// A table for people on standard output, and lines of JSON in a file.
// Errors of every call: kIo  the report cannot be written
class FigureReport {
 public:
  // json_path  "-": JSON on standard output in place of the table; empty: the table alone
  // Errors: as file::OpenGrowingFile
  static Result<FigureReport> Open(const std::string& json_path);

  // facts  {"machine": {...}, "device": {...}}: the first line
  // Errors: see above
  Status WriteFacts(const nlohmann::ordered_json& facts);
  // Of the rows that follow; for people only.
  // Errors: see above
  Status WriteTitle(const std::string& title);
  // Errors: see above
  Status WriteRow(FigureRow row, size_t name_width);

  const std::vector<FigureRow>& rows() const { return rows_; }

 private:
  struct CloseJson {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  explicit FigureReport(std::string json_path) : json_path_(std::move(json_path)) {}
  Status WriteTable(const std::string& text) const;
  Status WriteJson(const std::string& line) const;

  std::string json_path_;
  std::unique_ptr<std::FILE, CloseJson> json_;  // null: no file
  std::vector<FigureRow> rows_;
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_FIGURE_REPORT_H_
