// bench/on_device/figure_row.h - one row of the figures of a GPU, with its bar.
//
// Source: docs/device_figures.md
#ifndef LMDBIO_BENCH_ON_DEVICE_FIGURE_ROW_H_
#define LMDBIO_BENCH_ON_DEVICE_FIGURE_ROW_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "bench/spread.h"

namespace lmdbio::figures {

enum class Sense { kAtLeast, kAtMost, kReported };

// The limit for the median of a row.
struct Bar {
  Sense sense = Sense::kReported;
  double limit = 0;  // meaningless for kReported
};
inline Bar AtLeast(double limit) { return {Sense::kAtLeast, limit}; }
inline Bar AtMost(double limit) { return {Sense::kAtMost, limit}; }
inline Bar NoBar() { return {}; }

enum class FigureState {
  kMeasured,
  kLeftOut,  // not tried; the note says why
  kFailed,   // an error or a wrong result; the note has it
};

struct FigureRow {
  std::string id = {};    // "D1"
  std::string name = {};  // unique among those of the id
  std::string unit = {};
  Bar bar = {};
  FigureState state = FigureState::kLeftOut;
  tools::Spread figure = {};  // of a kMeasured row
  std::string note = {};
};

// Whether the median keeps to the bar. Nothing if there is no bar, or the row was not measured.
std::optional<bool> IsHeld(const FigureRow& row);

// {"id", "name", "unit", "value", "low", "high", "bar", "sense", "held", "state", "note"}, in one
// line with its end. What a row does not have is null.
std::string JsonLine(const FigureRow& row);

// For people, without the id: "NAME  VALUE (LOW..HIGH) UNIT  >= BAR  held  NOTE" and an end of the
// line.
std::string TableLine(const FigureRow& row, size_t name_width);

// 0: rows were measured, none has failed, and every bar is held. Otherwise 1.
int ExitCodeOf(const std::vector<FigureRow>& rows);

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_FIGURE_ROW_H_
