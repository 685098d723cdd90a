// tools/timeline/timeline_file.h - reads files of lmdbio/trace/timeline.h, also truncated ones.
#ifndef LMDBIO_TOOLS_TIMELINE_TIMELINE_FILE_H_
#define LMDBIO_TOOLS_TIMELINE_TIMELINE_FILE_H_

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "lmdbio/base/status.h"

namespace lmdbio::tools {

// The rank of a timeline file, and the start of its clock.
struct TimelineClock {
  int rank = 0;
  int size = 1;  // ranks of the job
  std::string host;
  std::string boot_id;    // boot id of the kernel; "" if unknown
  int64_t steady_ns = 0;  // the steady clock at time 0 of the file
  int64_t day_minus_steady_ns = 0;
  bool is_merged = false;  // the file is the output of `merge`, with aligned times
};

// Threads: one at a time.
class TimelineFile {
 public:
  // Errors: kNotFound, kPermission, kIo  the file cannot be read
  //         kCorruption                  the file is not a timeline
  static Result<TimelineFile> Open(const std::string& path);

  // Calls `take` for each complete event in file order.
  // take  receives JSON objects with a kind "ph", a whole "pid" and, unless the kind is "M", a "ts"
  // Errors: kIo; kCorruption  a line other than the last is not an event; names file and line
  //         errors of `take`
  using Take = std::function<Status(nlohmann::json& event)>;
  Status ReadAll(const Take& take);

  const std::string& path() const { return path_; }
  // After ReadAll: whether the end of the file is missing, for example after a kill.
  bool is_cut() const { return is_cut_; }

 private:
  TimelineFile(std::string path, std::ifstream in) : path_(std::move(path)), in_(std::move(in)) {}

  std::string path_;
  std::ifstream in_;
  bool is_cut_ = true;
};

// The clock in an event; nullopt if the event is not a clock event.
std::optional<TimelineClock> ClockIn(const nlohmann::json& event);

// The clocks of a file. A merged file has several.
// Errors: as TimelineFile; kCorruption  the file has no clock
Result<std::vector<TimelineClock>> ReadClocks(const std::string& path);

// The shifts, in microseconds, that bring the times of all files to one clock. Its 0 is the
// earliest time of all files. Files of one machine are aligned by its steady clock, files of
// several machines by their times of day, which are assumed to be right.
struct TimelineShifts {
  std::vector<double> us;  // [clocks]
  size_t machine_count = 0;
  std::string how;  // the method, as text for the report
};
TimelineShifts AlignClocks(std::span<const TimelineClock> clocks);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_TIMELINE_TIMELINE_FILE_H_
