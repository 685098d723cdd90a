#include "bench/on_device/figure_row.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lmdbio::figures {
namespace {

using nlohmann::ordered_json;

const char* SenseName(Sense sense) {
  switch (sense) {
    case Sense::kAtLeast:
      return "at least";
    case Sense::kAtMost:
      return "at most";
    default:
      return "reported";
  }
}

const char* StateName(FigureState state) {
  switch (state) {
    case FigureState::kMeasured:
      return "measured";
    case FigureState::kLeftOut:
      return "left out";
    default:
      return "failed";
  }
}

// Three digits or more.
std::string Number(double value) {
  const double size = std::abs(value);
  if (size >= 100) return fmt::format("{:.0f}", value);
  if (size >= 10) return fmt::format("{:.1f}", value);
  return size >= 0.01 ? fmt::format("{:.3f}", value) : fmt::format("{:.2g}", value);
}

std::string FigureText(const FigureRow& row) {
  if (row.state != FigureState::kMeasured) return StateName(row.state);
  const tools::Spread& figure = row.figure;
  std::string text = fmt::format("{} ({}..{}) {}", Number(figure.median), Number(figure.min),
                                 Number(figure.max), row.unit);
  if (const std::optional<bool> is_held = IsHeld(row)) {
    text += fmt::format("  {} {}  {}",
                        row.bar.sense == Sense::kAtLeast ? ">=" : "<=", Number(row.bar.limit),
                        *is_held ? "held" : "NOT HELD");
  }
  return text;
}

}  // namespace

std::optional<bool> IsHeld(const FigureRow& row) {
  if (row.state != FigureState::kMeasured) return std::nullopt;
  // A value that is not a number holds no bar.
  switch (row.bar.sense) {
    case Sense::kAtLeast:
      return row.figure.median >= row.bar.limit;
    case Sense::kAtMost:
      return row.figure.median <= row.bar.limit;
    default:
      return std::nullopt;
  }
}

std::string JsonLine(const FigureRow& row) {
  const bool is_measured = row.state == FigureState::kMeasured;
  const std::optional<bool> is_held = IsHeld(row);
  const auto number = [](bool is_there, double value) {
    return is_there ? ordered_json(value) : ordered_json();
  };
  const ordered_json object = {{"id", row.id},
                               {"name", row.name},
                               {"unit", row.unit},
                               {"value", number(is_measured, row.figure.median)},
                               {"low", number(is_measured, row.figure.min)},
                               {"high", number(is_measured, row.figure.max)},
                               {"bar", number(row.bar.sense != Sense::kReported, row.bar.limit)},
                               {"sense", SenseName(row.bar.sense)},
                               {"held", is_held ? ordered_json(*is_held) : ordered_json()},
                               {"state", StateName(row.state)},
                               {"note", row.note}};
  // Notes may contain bytes that are not UTF-8.
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string TableLine(const FigureRow& row, size_t name_width) {
  std::string text = fmt::format("  {:<{}}  {}", row.name, name_width, FigureText(row));
  if (!row.note.empty()) text += "  " + row.note;
  return text + "\n";
}

int ExitCodeOf(const std::vector<FigureRow>& rows) {
  bool is_measured = false;
  for (const FigureRow& row : rows) {
    if (row.state == FigureState::kFailed || IsHeld(row) == std::optional(false)) return 1;
    is_measured = is_measured || row.state == FigureState::kMeasured;
  }
  return is_measured ? 0 : 1;
}

}  // namespace lmdbio::figures
