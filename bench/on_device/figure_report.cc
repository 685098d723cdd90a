#include "bench/on_device/figure_report.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/output/growing_file.h"
#include "tools/cli/cli.h"

namespace lmdbio::figures {
namespace {

using nlohmann::ordered_json;

constexpr const char* kStandardOutput = "-";

std::string FactLines(const ordered_json& facts) {
  std::string text;
  for (const auto& [name, value] : facts.items()) {
    if (value.is_object()) {
      text += FactLines(value);
      continue;
    }
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += fmt::format("# {}: {}\n", words,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

}  // namespace

Result<FigureReport> FigureReport::Open(const std::string& json_path) {
  FigureReport report(json_path);
  if (json_path.empty() || json_path == kStandardOutput) return report;
  LMDBIO_TRY(UniqueFd file, file::OpenGrowingFile(json_path));
  report.json_.reset(::fdopen(file.get(), "w"));
  if (report.json_ == nullptr) return Fail(ErrnoError(errno, json_path, "open"));
  file.release();  // fclose closes it
  return report;
}

Status FigureReport::WriteFacts(const ordered_json& facts) {
  LMDBIO_TRY_VOID(WriteTable(FactLines(facts)));
  return WriteJson(facts.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
}

Status FigureReport::WriteTitle(const std::string& title) { return WriteTable(title + "\n"); }

Status FigureReport::WriteRow(FigureRow row, size_t name_width) {
  rows_.push_back(std::move(row));
  LMDBIO_TRY_VOID(WriteTable(TableLine(rows_.back(), name_width)));
  return WriteJson(JsonLine(rows_.back()));
}

Status FigureReport::WriteTable(const std::string& text) const {
  if (json_path_ == kStandardOutput) return {};
  LMDBIO_TRY_VOID(tools::WriteOutput(text));
  std::fflush(stdout);  // a crash later leaves the row
  return {};
}

Status FigureReport::WriteJson(const std::string& line) const {
  if (json_path_ == kStandardOutput) {
    LMDBIO_TRY_VOID(tools::WriteOutput(line));
    std::fflush(stdout);
    return {};
  }
  if (json_ == nullptr) return {};
  const bool is_written = std::fwrite(line.data(), 1, line.size(), json_.get()) == line.size() &&
                          std::fflush(json_.get()) == 0;
  return is_written ? Status() : Fail(ErrnoError(errno, json_path_, "write"));
}

}  // namespace lmdbio::figures
