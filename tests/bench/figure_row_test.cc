// Goal: a row says whether its bar is held, and a program that has measured nothing, has failed
// anywhere or has missed a bar does not end with 0.
#include "bench/on_device/figure_row.h"

#include <cmath>

#include "tests/support/catch.h"

namespace lmdbio::figures {
namespace {

using nlohmann::json;

FigureRow MeasuredRow(double median, Bar bar) {
  return {.id = "D1",
          .name = "a row",
          .unit = "ratio",
          .bar = bar,
          .state = FigureState::kMeasured,
          .figure = {.median = median, .min = median / 2, .max = median * 2},
          .note = "of three"};
}

TEST_CASE("A bar is held by the median, and by its own value", "[figures]") {
  CHECK(IsHeld(MeasuredRow(0.9, AtLeast(0.9))) == true);
  CHECK(IsHeld(MeasuredRow(0.89, AtLeast(0.9))) == false);
  CHECK(IsHeld(MeasuredRow(0.9, AtMost(0.9))) == true);
  CHECK(IsHeld(MeasuredRow(0.91, AtMost(0.9))) == false);
  CHECK(IsHeld(MeasuredRow(5, NoBar())) == std::nullopt);
}

TEST_CASE("A value that is not a number holds no bar", "[figures]") {
  CHECK(IsHeld(MeasuredRow(std::nan(""), AtLeast(0))) == false);
  CHECK(IsHeld(MeasuredRow(std::nan(""), AtMost(1))) == false);
}

TEST_CASE("Only a measured row holds a bar", "[figures]") {
  FigureRow row = MeasuredRow(5, AtLeast(1));
  for (const FigureState state : {FigureState::kLeftOut, FigureState::kFailed}) {
    row.state = state;
    CHECK(IsHeld(row) == std::nullopt);
  }
}

TEST_CASE("A row is one line of JSON", "[figures]") {
  FigureRow row = MeasuredRow(4, AtMost(0.5));
  const std::string line = JsonLine(row);
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(json::parse(line) == json::parse(R"({"id": "D1", "name": "a row", "unit": "ratio",
      "value": 4.0, "low": 2.0, "high": 8.0, "bar": 0.5, "sense": "at most", "held": false,
      "state": "measured", "note": "of three"})"));

  row.bar = NoBar();
  json object = json::parse(JsonLine(row));
  CHECK(object["bar"].is_null());
  CHECK(object["held"].is_null());
  CHECK(object["sense"] == "reported");

  row.bar = AtLeast(1);
  row.state = FigureState::kLeftOut;
  object = json::parse(JsonLine(row));
  CHECK(object["state"] == "left out");
  CHECK(object["sense"] == "at least");
  CHECK(object["bar"] == 1);
  for (const char* const name : {"value", "low", "high", "held"}) CHECK(object[name].is_null());
}

TEST_CASE("A note with bytes of no text is still JSON", "[figures]") {
  FigureRow row = MeasuredRow(1, NoBar());
  row.note = "path \xff";
  CHECK(json::parse(JsonLine(row))["state"] == "measured");
}

TEST_CASE("The table marks a bar that is not held", "[figures]") {
  CHECK(TableLine(MeasuredRow(4, AtMost(0.5)), 7) ==
        "  a row    4.000 (2.000..8.000) ratio  <= 0.500  NOT HELD  of three\n");
  CHECK_THAT(TableLine(MeasuredRow(4, AtLeast(0.5)), 7), ContainsSubstring(">= 0.500  held"));
  FigureRow row = MeasuredRow(1, AtLeast(1));
  row.state = FigureState::kFailed;
  CHECK(TableLine(row, 5) == "  a row  failed  of three\n");
}

TEST_CASE("Exit code 0 needs a measured row, no failure and all bars", "[figures]") {
  const FigureRow held = MeasuredRow(1, AtLeast(1));
  const FigureRow reported = MeasuredRow(1, NoBar());
  FigureRow left_out = held;
  left_out.state = FigureState::kLeftOut;
  FigureRow failed = held;
  failed.state = FigureState::kFailed;
  CHECK(ExitCodeOf({held, reported}) == 0);
  CHECK(ExitCodeOf({reported, left_out}) == 0);
  CHECK(ExitCodeOf({held, MeasuredRow(0.5, AtLeast(1)), held}) == 1);
  CHECK(ExitCodeOf({held, failed, held}) == 1);
  CHECK(ExitCodeOf({left_out, left_out}) == 1);
  CHECK(ExitCodeOf({}) == 1);
}

}  // namespace
}  // namespace lmdbio::figures
