#include "bench/bundle/bundle_report.h"

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>

namespace lmdbio::bundle {
namespace {

using nlohmann::ordered_json;

constexpr const char* kPassed = "passed";
constexpr const char* kMeasured = "measured";
constexpr const char* kLeftOut = "left out";
constexpr const char* kFailed = "failed";
constexpr const char* kNotHeld = "not held";

std::string TextAt(const ordered_json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

double NumberAt(const ordered_json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

bool IsRow(const ordered_json& object) {
  const auto is_text = [&](const char* name) {
    return object.contains(name) && object[name].is_string();
  };
  return is_text("id") && is_text("name") && is_text("state");
}

Row RowOfAnswer(const ordered_json& answer) {
  const std::string state = TextAt(answer, "state");
  const bool has_figure = answer.contains("median");
  std::string note = TextAt(answer, "note");
  Row row = RowOf(TextAt(answer, "question"), TextAt(answer, "row"), kFailed, "");
  if (state == "yes") row["state"] = has_figure ? kMeasured : kPassed;
  if (state == "did not drain") row["state"] = kPassed;
  if (state == "unsupported" || state == kLeftOut) row["state"] = kLeftOut;
  if (state != "yes" && row["state"] != state) note = state + ": " + note;
  row["note"] = note;
  if (has_figure) {
    row["unit"] = TextAt(answer, "unit");
    row["value"] = NumberAt(answer, "median");
    row["low"] = NumberAt(answer, "min");
    row["high"] = NumberAt(answer, "max");
    row["sense"] = "reported";
  }
  return row;
}

std::string ValueText(const Row& row) {
  const std::string state = TextAt(row, "state");
  if (state != kMeasured) return state == kFailed ? "FAILED" : state;
  std::string text = fmt::format("{:.4g} ({:.4g}..{:.4g}) {}", NumberAt(row, "value"),
                                 NumberAt(row, "low"), NumberAt(row, "high"), TextAt(row, "unit"));
  if (row.contains("held") && row["held"].is_boolean()) {
    text += fmt::format("  {} {:.4g}  {}", TextAt(row, "sense"), NumberAt(row, "bar"),
                        row["held"].get<bool>() ? "held" : "NOT HELD");
  }
  return text;
}

std::string LineOf(const Row& row) {
  std::string text =
      fmt::format("  {:<3} {:<56} {}", TextAt(row, "id"), TextAt(row, "name"), ValueText(row));
  const std::string note = TextAt(row, "note");
  if (!note.empty()) text += "  " + note;
  return text + "\n";
}

std::string FactLines(const ordered_json& facts) {
  std::string text;
  for (const auto& [name, value] : facts.items()) {
    if (value.is_object()) {
      text += FactLines(value);
    } else {
      text += fmt::format("# {}: {}\n", name,
                          value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  return text;
}

}  // namespace

Row RowOf(std::string id, std::string name, std::string state, std::string note) {
  return {{"id", std::move(id)},
          {"name", std::move(name)},
          {"state", std::move(state)},
          {"note", std::move(note)}};
}

Rows RowsOfLines(std::string_view text) {
  Rows told;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    ordered_json object = ordered_json::parse(line, nullptr, false);
    if (!object.is_object()) continue;
    (IsRow(object) ? told.rows : told.facts).push_back(std::move(object));
  }
  return told;
}

Rows RowsOfProbe(std::string_view report) {
  Rows told;
  const ordered_json whole = ordered_json::parse(report, nullptr, false);
  if (!whole.is_object() || !whole.contains("rows")) return told;
  for (const ordered_json& answer : whole["rows"]) told.rows.push_back(RowOfAnswer(answer));
  if (whole.contains("device")) told.facts.push_back(whole["device"]);
  return told;
}

bool MissesBar(const Row& row) {
  return row.contains("held") && row["held"].is_boolean() && !row["held"].get<bool>();
}

// As the last line counts a row.
std::string CountedAs(const Row& row) {
  std::string state = TextAt(row, "state");
  return state != kFailed && MissesBar(row) ? kNotHeld : state;
}

bool HasFailed(const Row& row) { return TextAt(row, "state") == kFailed || MissesBar(row); }

bool BundleOutcome::HasHeld() const {
  bool is_any_told = false;
  for (const PartOutcome& part : parts) {
    for (const Row& row : part.told.rows) {
      if (HasFailed(row)) return false;
      is_any_told = is_any_told || TextAt(row, "state") != kLeftOut;
    }
  }
  return is_any_told;
}

std::string TableOf(const BundleOutcome& outcome) {
  std::string text = FactLines(outcome.machine);
  std::string failed;
  std::map<std::string, int> counts;
  for (const PartOutcome& part : outcome.parts) {
    text += fmt::format("\n{}: {}, {:.1f} s\n", part.name, part.end, part.seconds);
    for (const ordered_json& facts : part.told.facts) text += FactLines(facts);
    for (const Row& row : part.told.rows) {
      text += LineOf(row);
      if (HasFailed(row)) failed += LineOf(row);
      ++counts[CountedAs(row)];
    }
  }
  if (!failed.empty()) text += "\nnot held:\n" + failed;
  return text +
         fmt::format(
             "\n{}: {} passed, {} measured, {} not held, {} failed, {} left out, in {:.0f} s\n",
             outcome.HasHeld() ? "held" : "NOT HELD", counts[kPassed], counts[kMeasured],
             counts[kNotHeld], counts[kFailed], counts[kLeftOut], outcome.seconds);
}

std::string JsonOf(const BundleOutcome& outcome) {
  ordered_json parts = ordered_json::array();
  for (const PartOutcome& part : outcome.parts) {
    parts.push_back({{"part", part.name},
                     {"end", part.end},
                     {"seconds", part.seconds},
                     {"facts", part.told.facts},
                     {"rows", part.told.rows}});
  }
  const ordered_json whole = {{"machine", outcome.machine},
                              {"held", outcome.HasHeld()},
                              {"seconds", outcome.seconds},
                              {"parts", parts}};
  return whole.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lmdbio::bundle
