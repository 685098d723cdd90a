#include "bench/device/probe_report.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bench/device/probe_trials.h"
#include "bench/spread.h"
#include "lmdbio/file/source/small_file.h"

namespace lmdbio::probe {
namespace {

using nlohmann::ordered_json;

std::string FactLines(const ordered_json& facts) {
  std::string text;
  for (const auto& [name, value] : facts.items()) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += fmt::format("# {}: {}\n", words,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

// Three digits or more.
std::string Number(double value) {
  const double size = std::abs(value);
  if (size >= 100) return fmt::format("{:.0f}", value);
  if (size >= 10) return fmt::format("{:.1f}", value);
  return size >= 0.01 ? fmt::format("{:.3f}", value) : fmt::format("{:.2g}", value);
}

std::string FigureOf(const ProbeRow& row) {
  if (row.unit.empty() || row.samples.empty()) return "";
  const tools::Spread spread = tools::SpreadOf(row.samples);
  if (row.samples.size() == 1) return fmt::format("{} {}", Number(spread.median), row.unit);
  return fmt::format("{} {} ({}..{})", Number(spread.median), row.unit, Number(spread.min),
                     Number(spread.max));
}

std::string RowLine(const ProbeRow& row, size_t name_width) {
  std::string text = fmt::format("  {:<{}}  {:<13}", row.name, name_width, StateName(row.state));
  if (std::string figure = FigureOf(row); !figure.empty()) text += "  " + figure;
  if (!row.note.empty()) text += "  " + row.note;
  text.erase(text.find_last_not_of(' ') + 1);
  return text + "\n";
}

}  // namespace

std::string TableOf(const ProbeOutcome& outcome) {
  std::string text = FactLines(outcome.machine) + FactLines(outcome.device) +
                     fmt::format("# seconds: {:.1f}\n", outcome.seconds);
  for (const auto& [question, title] : AllQuestions()) {
    std::vector<const ProbeRow*> rows;
    size_t name_width = 0;
    for (const ProbeRow& row : outcome.rows) {
      if (row.question != question) continue;
      rows.push_back(&row);
      name_width = std::max(name_width, row.name.size());
    }
    std::string lines;
    for (const ProbeRow* const row : rows) lines += RowLine(*row, name_width);
    if (!lines.empty()) text += fmt::format("{}  {}\n{}", question, title, lines);
  }
  return text;
}

std::string JsonOf(const ProbeOutcome& outcome) {
  ordered_json object = {{"machine", outcome.machine},
                         {"device", outcome.device},
                         {"seconds", outcome.seconds},
                         {"rows", ordered_json::array()}};
  for (const ProbeRow& row : outcome.rows) object["rows"].push_back(ToJson(row));
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Status WriteReportFile(const std::string& path, std::string_view text) {
  return file::WriteFileAtomically(path, std::as_bytes(std::span(text)));
}

}  // namespace lmdbio::probe
