// Goal: each planned row of a part is told once, whatever happens to the part.
#include "bench/on_device/figure_run.h"

#include <map>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::figures {
namespace {

using test::Good;
using test::Must;

FigurePart ThreeRows(std::function<Status(FigureRun& run)> measure) {
  FigurePart part = {.id = "D1", .title = "three", .measure = std::move(measure)};
  part.Plan("a", "ratio", AtLeast(1));
  part.Plan("b", "s", NoBar());
  part.Plan("c", "ratio", AtMost(1));
  return part;
}

// The rows of a part in the order in which they were told.
std::vector<FigureRow> RowsOf(const FigurePart& part, double seconds_left = 60) {
  FigureReport report = Good(FigureReport::Open(""));
  const FigureScene scene = {.seconds_end = SecondsNow() + seconds_left};
  Must(FigureRun(scene, part, report).RunPart());
  return report.rows();
}

Result<Measured> Three() { return Measured{.samples = {3, 1, 2}, .note = "note"}; }

TEST_CASE("A measured row has the median and the range of its samples", "[figures]") {
  const auto rows = RowsOf(ThreeRows([](FigureRun& run) -> Status {
    for (const char* const name : {"c", "a", "b"}) run.Measure(name, Three);
    return {};
  }));
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].name == "c");
  CHECK(rows[1].bar.sense == Sense::kAtLeast);
  for (const FigureRow& row : rows) {
    CHECK(row.id == "D1");
    CHECK(row.state == FigureState::kMeasured);
    CHECK(row.figure.median == 2);
    CHECK(row.figure.min == 1);
    CHECK(row.figure.max == 3);
    CHECK(row.note == "note");
  }
  CHECK(rows[2].unit == "s");
}

TEST_CASE("A row that fails leaves the others", "[figures]") {
  const auto rows = RowsOf(ThreeRows([](FigureRun& run) -> Status {
    run.Measure("a", []() -> Result<Measured> { return Fail(ErrorCode::kInternal, "broken"); });
    run.Measure("b", Three);
    run.Measure("c", []() -> Result<Measured> { return Measured(); });
    return {};
  }));
  CHECK(rows[0].state == FigureState::kFailed);
  CHECK(rows[0].note == "broken");
  CHECK(rows[1].state == FigureState::kMeasured);
  CHECK(rows[2].state == FigureState::kFailed);
}

TEST_CASE("A part that ends early has failed the rows that are missing", "[figures]") {
  const auto rows = RowsOf(ThreeRows([](FigureRun& run) -> Status {
    run.Measure("b", Three);
    return Fail(ErrorCode::kInternal, "broken");
  }));
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].name == "b");
  for (const size_t i : {size_t{1}, size_t{2}}) {
    CHECK(rows[i].state == FigureState::kFailed);
    CHECK(rows[i].note == "broken");
  }
  CHECK(RowsOf(ThreeRows([](FigureRun&) { return Status(); }))[0].state == FigureState::kFailed);
}

TEST_CASE("Rows are left out with a reason", "[figures]") {
  const auto rows = RowsOf(ThreeRows([](FigureRun& run) -> Status {
    run.LeaveOut("b", "no b");
    run.LeaveOutRest("no rest");
    return {};
  }));
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].note == "no b");
  CHECK(rows[2].note == "no rest");
  for (const FigureRow& row : rows) CHECK(row.state == FigureState::kLeftOut);
}

TEST_CASE("A row whose bar is not for what was found is left out", "[figures]") {
  const auto rows = RowsOf(ThreeRows([](FigureRun& run) -> Status {
    for (const char* const name : {"a", "b", "c"}) {
      run.Measure(name, []() -> Result<Measured> {
        return Measured{.samples = {1}, .note = "note", .left_out = "other limit"};
      });
    }
    return {};
  }));
  REQUIRE(rows.size() == 3);
  for (const FigureRow& row : rows) {
    CHECK(row.state == FigureState::kLeftOut);
    CHECK(row.note == "other limit");
  }
}

TEST_CASE("After the time for all, rows are left out and nothing is measured", "[figures]") {
  int measured = 0;
  const auto measure = [&](FigureRun& run) -> Status {
    ++measured;
    run.Measure("a", Three);
    return {};
  };
  for (const FigureRow& row : RowsOf(ThreeRows(measure), 0)) {
    CHECK(row.state == FigureState::kLeftOut);
    CHECK_THAT(row.note, ContainsSubstring("--seconds-max"));
  }
  CHECK(measured == 0);
}

TEST_CASE("A row is in the file before the next one is measured", "[figures]") {
  const test::TempDir dir;
  const auto path = dir.path() / "rows.json";
  FigureReport report = Good(FigureReport::Open(path.string()));
  Must(report.WriteFacts({{"machine", {{"cores", 2}}}}));
  std::string after_first;
  const FigurePart part = ThreeRows([&](FigureRun& run) -> Status {
    run.Measure("a", Three);
    after_first = test::ReadWholeTextFile(path);
    run.LeaveOutRest("");
    return {};
  });
  const FigureScene scene = {.seconds_end = SecondsNow() + 60};
  Must(FigureRun(scene, part, report).RunPart());
  CHECK(after_first == "{\"machine\":{\"cores\":2}}\n" + JsonLine(report.rows()[0]));
  CHECK(test::ReadWholeTextFile(path) ==
        after_first + JsonLine(report.rows()[1]) + JsonLine(report.rows()[2]));
}

TEST_CASE("A report that cannot be written is an error", "[figures]") {
  CHECK(FigureReport::Open("/nowhere/rows.json").error().code() == ErrorCode::kNotFound);
  FigureReport full = Good(FigureReport::Open("/dev/full"));
  const FigurePart part = ThreeRows([](FigureRun&) { return Status(); });
  const FigureScene scene = {.seconds_end = SecondsNow() + 60};
  CHECK(FigureRun(scene, part, full).RunPart().error().message().find("/dev/full") !=
        std::string::npos);
}

}  // namespace
}  // namespace lmdbio::figures
