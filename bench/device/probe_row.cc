#include "bench/device/probe_row.h"

#include <algorithm>
#include <array>
#include <utility>

#include "bench/spread.h"

namespace lmdbio::probe {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::pair<RowState, const char*>, 5> kStates = {
    {{RowState::kYes, "yes"},
     {RowState::kUnsupported, "unsupported"},
     {RowState::kFailed, "failed"},
     {RowState::kNotDrained, "did not drain"},
     {RowState::kLeftOut, "left out"}}};

// Messages may contain bytes that are not UTF-8.
std::string Dump(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string TextOf(const ordered_json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

const char* StateName(RowState state) {
  for (const auto& [known, name] : kStates) {
    if (known == state) return name;
  }
  return "";
}

ProbeRow RowOfError(std::string name, const Error& error) {
  const bool is_refused = error.code() == ErrorCode::kUnsupported;
  return {.name = std::move(name),
          .state = is_refused ? RowState::kUnsupported : RowState::kFailed,
          .note = error.message()};
}

std::string ToLine(const ProbeRow& row) {
  const ordered_json object = {{"row", row.name},
                               {"state", StateName(row.state)},
                               {"unit", row.unit},
                               {"samples", row.samples},
                               {"note", row.note}};
  return Dump(object) + "\n";
}

std::optional<ProbeRow> RowOfJson(const ordered_json& object) {
  if (!object.is_object() || !object.contains("row")) return std::nullopt;
  ProbeRow row;
  row.name = TextOf(object, "row");
  row.unit = TextOf(object, "unit");
  row.note = TextOf(object, "note");
  const std::string state = TextOf(object, "state");
  const auto known = std::find_if(kStates.begin(), kStates.end(),
                                  [&](const auto& entry) { return state == entry.second; });
  if (row.name.empty() || known == kStates.end()) return std::nullopt;
  row.state = known->first;
  if (const auto found = object.find("samples"); found != object.end() && found->is_array()) {
    for (const auto& sample : *found) {
      if (sample.is_number()) row.samples.push_back(sample.get<double>());
    }
  }
  return row;
}

ordered_json ToJson(const ProbeRow& row) {
  ordered_json object = {
      {"question", row.question}, {"row", row.name}, {"state", StateName(row.state)}};
  if (!row.unit.empty() && !row.samples.empty()) {
    const tools::Spread spread = tools::SpreadOf(row.samples);
    object["unit"] = row.unit;
    object["median"] = spread.median;
    object["min"] = spread.min;
    object["max"] = spread.max;
    object["samples"] = row.samples.size();
  }
  object["note"] = row.note;
  return object;
}

}  // namespace lmdbio::probe
