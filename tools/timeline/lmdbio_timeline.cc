// lmdbio-timeline: merges the timelines of all ranks, and reports on them.
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/output/output_file.h"
#include "tools/cli/cli.h"
#include "tools/timeline/timeline_file.h"
#include "tools/timeline/timeline_report.h"

namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using lmdbio::ErrorCode;
using lmdbio::Fail;
using lmdbio::Result;
using lmdbio::Status;
using lmdbio::tools::Invocation;
using lmdbio::tools::TimelineClock;
using lmdbio::tools::TimelineFile;
using nlohmann::json;
using nlohmann::ordered_json;

// The timeline files of a job, and the alignment of their clocks.
struct Inputs {
  std::vector<std::string> paths;
  std::vector<std::vector<TimelineClock>> clocks;  // [paths]
  std::vector<double> shifts_us;                   // [paths]
  std::string how;
};

// Two files of one rank are from different runs, or one file was given twice. Their events would
// overlap.
Status CheckRanks(const Inputs& inputs) {
  std::map<int, std::string> path_of_rank;
  for (size_t i = 0; i < inputs.paths.size(); ++i) {
    for (const TimelineClock& clock : inputs.clocks[i]) {
      const auto [place, is_new] = path_of_rank.try_emplace(clock.rank, inputs.paths[i]);
      if (is_new) continue;
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{} and {} are both of rank {}", place->second, inputs.paths[i], clock.rank));
    }
  }
  return {};
}

// The files are read twice: here for their clocks, and later for their events. So no events are
// kept in memory.
Result<Inputs> OpenInputs(const Invocation& invocation) {
  Inputs inputs;
  inputs.paths = invocation.operand_list("IN");
  std::vector<TimelineClock> firsts;
  bool is_merged = false;
  for (const std::string& path : inputs.paths) {
    LMDBIO_TRY(auto clocks, lmdbio::tools::ReadClocks(path));
    is_merged = is_merged || clocks.front().is_merged;
    // A merged file has the clocks of all ranks, but its times are aligned already. Alone it is
    // shifted by 0, whichever clock is first.
    firsts.push_back(clocks.front());
    inputs.clocks.push_back(std::move(clocks));
  }
  if (is_merged && inputs.paths.size() > 1) {
    return Fail(ErrorCode::kInvalidArgument,
                "a merged timeline cannot be read with other files; give only one IN");
  }
  LMDBIO_TRY_VOID(CheckRanks(inputs));
  auto shifts = lmdbio::tools::AlignClocks(firsts);
  inputs.shifts_us = std::move(shifts.us);
  inputs.how = is_merged ? "as in the merged file" : std::move(shifts.how);
  return inputs;
}

ordered_json DescribeFile(const TimelineFile& file, const TimelineClock& clock,
                          uint64_t event_count, double shift_us) {
  return {{"file", file.path()},
          {"rank", clock.rank},
          {"host", clock.host},
          {"events", event_count},
          {"moved_by_us", std::round(shift_us * 1000) / 1000},
          {"is_cut", file.is_cut()}};
}

void WarnIfCut(const Invocation& invocation, const TimelineFile& file) {
  if (file.is_cut()) invocation.Warn(file.path() + ": is truncated; its complete events are used");
}

// Reads all files, shifts the times of their events to one clock, and passes the events to `take`.
Result<ordered_json> ReadInputs(const Invocation& invocation, const Inputs& inputs,
                                const std::function<Status(json& event)>& take) {
  ordered_json files = ordered_json::array();
  for (size_t i = 0; i < inputs.paths.size(); ++i) {
    LMDBIO_TRY(TimelineFile file, TimelineFile::Open(inputs.paths[i]));
    uint64_t event_count = 0;
    LMDBIO_TRY_VOID(file.ReadAll([&](json& event) -> Status {
      ++event_count;
      if (event.contains("ts")) {
        const double at = event["ts"].get<double>() + inputs.shifts_us[i];
        // Rounded to nanoseconds, the unit of the clocks, so that a shift does not add digits.
        event["ts"] = std::round(at * 1000) / 1000;
      }
      return take(event);
    }));
    WarnIfCut(invocation, file);
    files.push_back(DescribeFile(file, inputs.clocks[i].front(), event_count, inputs.shifts_us[i]));
  }
  return files;
}

Status CheckApart(const std::string& out, const std::vector<std::string>& inputs) {
  for (const std::string& input : inputs) {
    std::error_code error;
    // Compares files and not names, so a link to an input is found, too.
    if (fs::equivalent(out, input, error)) {
      return Fail(ErrorCode::kInvalidArgument, out + ": is one of the files to merge");
    }
  }
  return {};
}

lmdbio::Bytes AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

Status Merge(const Invocation& invocation) {
  const std::string& path = invocation.operand("OUT");
  LMDBIO_TRY(const Inputs inputs, OpenInputs(invocation));
  LMDBIO_TRY_VOID(CheckApart(path, inputs.paths));
  LMDBIO_TRY(const auto out, lmdbio::file::OutputFile::Create(path));
  // The events stay in the order of the files. Viewers sort them by time.
  const char* before = "[\n";
  LMDBIO_TRY(ordered_json files, ReadInputs(invocation, inputs, [&](json& event) -> Status {
               // The mark keeps a second merge from shifting the times again.
               if (event.value("name", "") == "lmdbio_clock") event["args"]["is_merged"] = true;
               LMDBIO_TRY_VOID(out->Write(AsBytes(before + event.dump())));
               before = ",\n";
               return {};
             }));
  LMDBIO_TRY_VOID(out->Write(AsBytes("\n]\n")));
  LMDBIO_TRY_VOID(out->Publish());
  ordered_json outcome = {{"merged", path}, {"clocks", inputs.how}};
  outcome["files"] = std::move(files);
  return invocation.Report(outcome);
}

Status Report(const Invocation& invocation) {
  LMDBIO_TRY(const Inputs inputs, OpenInputs(invocation));
  lmdbio::tools::TimelineReport report;
  LMDBIO_TRY(ordered_json files, ReadInputs(invocation, inputs, [&](json& event) -> Status {
               report.Take(event);
               return {};
             }));
  ordered_json outcome = {{"clocks", inputs.how}};
  outcome["files"] = std::move(files);
  outcome.update(report.Outcome(invocation.whole("tensors")));
  return invocation.Report(outcome);
}

void DescribeReport(po::options_description_easy_init options) {
  options("tensors", po::value<lmdbio::tools::Whole>()->value_name("N")->default_value({10}),
          "report the N slowest tensors");
}

}  // namespace

int main(int argc, char** argv) {
  const std::array commands = {
      lmdbio::tools::Command{"merge", "OUT IN...",
                             "Writes the timelines of several ranks as one, for Chrome's "
                             "about:tracing or Perfetto.",
                             nullptr, &Merge, lmdbio::tools::Output::kReport,
                             "Times are shifted to one clock: files of one machine by its steady "
                             "clock,\nfiles of several machines by their times of day."},
      lmdbio::tools::Command{"report", "IN...",
                             "Reports the time of phases, late ranks, exposed time and buckets.",
                             &DescribeReport, &Report, lmdbio::tools::Output::kReport,
                             "IN are the files of all ranks, or one merged file."},
  };
  return lmdbio::tools::RunTool("lmdbio-timeline",
                                "Merges and reads timelines of gradient synchronisation.", commands,
                                argc, argv);
}
