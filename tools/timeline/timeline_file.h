// tools/timeline/timeline_file.h - reads the files that lmdbio/trace/timeline.h writes, also their
// remains.
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

// Whose file it is, and when it began.
struct TimelineClock {
  int rank = 0;
  int size = 1;  // ranks of the job
  std::string host;
  std::string boot_id;    // of the kernel; "": not known
  int64_t steady_ns = 0;  // at the file's time 0
  int64_t day_minus_steady_ns = 0;
  bool is_merged = false;  // its events' times are those of a merged file already
};

// Threads: one at a time.
class TimelineFile {
 public:
  // Errors: kNotFound, kPermission, kIo  the file cannot be read
  //         kCorruption                  no timeline
  static Result<TimelineFile> Open(const std::string& path);

  // Calls `take` for each event in its order, from the first to the last that is whole.
  // take  may be given any JSON object with a kind "ph", a whole "pid", and, but for "M", a "ts"
  // Errors: kIo; kCorruption  a line that is no event, and is not the last; names file and line
  //         of take
  using Take = std::function<Status(nlohmann::json& event)>;
  Status ReadAll(const Take& take);

  const std::string& path() const { return path_; }
  // After ReadAll: whether the end is missing, as of a process that was killed.
  bool is_cut() const { return is_cut_; }

 private:
  TimelineFile(std::string path, std::ifstream in) : path_(std::move(path)), in_(std::move(in)) {}

  std::string path_;
  std::ifstream in_;
  bool is_cut_ = true;
};

// The clock that an event tells of, if it does.
std::optional<TimelineClock> ClockIn(const nlohmann::json& event);

// The clocks of a file; those of a merged one are several.
// Errors: as TimelineFile; kCorruption  there is none
Result<std::vector<TimelineClock>> ReadClocks(const std::string& path);

// By how much the files' times, in microseconds, are to be moved so that they are of one clock
// whose 0 is the earliest of all. Files of one machine have one steady clock, and need no time of
// day; of several machines the times of day are taken as right.
struct TimelineShifts {
  std::vector<double> us;  // [clocks]
  size_t machine_count = 0;
  std::string how;  // in words
};
TimelineShifts AlignClocks(std::span<const TimelineClock> clocks);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_TIMELINE_TIMELINE_FILE_H_
