#include "tools/timeline/timeline_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::tools {
namespace {

using nlohmann::json;

// Times beyond this limit are damage. Below it, a double is exact to a microsecond, and sums stay
// finite.
constexpr double kLargestUs = 1e15;  // thirty years

Status OpenError(const std::string& path) {
  const int error = errno;
  const ErrorCode code = error == ENOENT   ? ErrorCode::kNotFound
                         : error == EACCES ? ErrorCode::kPermission
                                           : ErrorCode::kIo;
  return Fail(code, fmt::format("{}: {}", path, std::strerror(error)));
}

bool IsNumber(const json& event, const char* name, double least) {
  const auto member = event.find(name);
  if (member == event.end() || !member->is_number()) return false;
  const double value = member->get<double>();
  return value >= least && value <= kLargestUs;
}

bool IsRank(const json& event, const char* name) {
  const auto member = event.find(name);
  // The limit of IsNumber comes first, so the conversion to int64_t cannot overflow.
  return member != event.end() && member->is_number_integer() && IsNumber(event, name, 0) &&
         member->get<int64_t>() <= std::numeric_limits<int>::max();
}

// Checks everything that later code reads without a check: the kinds of members, and the times of
// events that have them. "M" is metadata, "X" a complete span.
bool IsEvent(const json& event) {
  if (!event.is_object() || !IsRank(event, "pid")) return false;
  const auto kind = event.find("ph");
  if (kind == event.end() || !kind->is_string()) return false;
  if (event.contains("name") && !event["name"].is_string()) return false;
  if (event.contains("args") && !event["args"].is_object()) return false;
  if (*kind == "M") return true;
  return IsNumber(event, "ts", -kLargestUs) && (*kind != "X" || IsNumber(event, "dur", 0));
}

// Ranks in containers of one machine have different host names but the same boot id, and the same
// steady clock.
std::string MachineOf(const TimelineClock& clock) {
  return clock.boot_id.empty() ? "host " + clock.host : clock.boot_id;
}

}  // namespace

Result<TimelineFile> TimelineFile::Open(const std::string& path) {
  std::error_code error;
  // Linux opens a directory for reading, and only the first read fails.
  if (std::filesystem::is_directory(path, error)) {
    return Fail(ErrorCode::kIo, path + ": is a directory");
  }
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) LMDBIO_TRY_VOID(OpenError(path));
  std::string line;
  if (!std::getline(in, line) || line != "[") {
    return Fail(ErrorCode::kCorruption,
                path + ": not an lmdbio timeline: it does not begin with [");
  }
  return TimelineFile(path, std::move(in));
}

Status TimelineFile::ReadAll(const Take& take) {
  std::string line;
  uint64_t number = 1;
  while (std::getline(in_, line)) {
    ++number;
    // A process that is killed leaves a file without "]", often with a part of its last line. Only
    // the last line may be incomplete.
    const bool is_last = in_.eof() || in_.peek() == std::ifstream::traits_type::eof();
    if (line == "]") {
      is_cut_ = false;
      if (is_last) return {};
      return Fail(ErrorCode::kCorruption,
                  fmt::format("{}: line {}: more text follows the end ']'", path_, number));
    }
    if (line.ends_with(',')) line.pop_back();
    json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!IsEvent(event)) {
      if (is_last) return {};  // the process ended while it wrote this line
      return Fail(ErrorCode::kCorruption,
                  fmt::format("{}: line {} is not an event", path_, number));
    }
    LMDBIO_TRY_VOID(take(event));
  }
  if (in_.bad()) return Fail(ErrorCode::kIo, path_ + ": cannot be read");
  return {};
}

std::optional<TimelineClock> ClockIn(const json& event) {
  if (event.value("name", "") != "lmdbio_clock" || !event.contains("args")) return std::nullopt;
  const json& args = event["args"];
  const auto text = [&](const char* name) {
    return args.contains(name) && args[name].is_string() ? args[name].get<std::string>() : "";
  };
  if (!IsRank(args, "rank") || !IsRank(args, "size")) return std::nullopt;
  for (const char* name : {"steady_ns", "day_minus_steady_ns"}) {
    // The limit prevents an overflow in a sum or difference of two times.
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
    if (!args.contains(name) || !args[name].is_number_integer()) return std::nullopt;
    const auto ns = args[name].get<int64_t>();
    if (ns > kMost || ns < 0) return std::nullopt;
  }
  TimelineClock clock;
  clock.rank = args["rank"].get<int>();
  clock.size = args["size"].get<int>();
  clock.host = text("host");
  clock.boot_id = text("boot_id");
  clock.steady_ns = args["steady_ns"].get<int64_t>();
  clock.day_minus_steady_ns = args["day_minus_steady_ns"].get<int64_t>();
  clock.is_merged = args.contains("is_merged");
  return clock;
}

Result<std::vector<TimelineClock>> ReadClocks(const std::string& path) {
  LMDBIO_TRY(TimelineFile file, TimelineFile::Open(path));
  std::vector<TimelineClock> clocks;
  LMDBIO_TRY_VOID(file.ReadAll([&](json& event) -> Status {
    std::optional<TimelineClock> clock = ClockIn(event);
    if (clock) clocks.push_back(*std::move(clock));
    return {};
  }));
  if (clocks.empty()) {
    return Fail(ErrorCode::kCorruption, path + ": not an lmdbio timeline: it has no clock event");
  }
  return clocks;
}

TimelineShifts AlignClocks(std::span<const TimelineClock> clocks) {
  std::map<std::string, std::vector<int64_t>> days;  // day_minus_steady_ns, by machine
  for (const TimelineClock& clock : clocks) {
    days[MachineOf(clock)].push_back(clock.day_minus_steady_ns);
  }
  std::vector<int64_t> begins;
  for (const TimelineClock& clock : clocks) {
    // The median of the machine, because the time of day may have been changed between two
    // openings. All files of a machine get the same median, so their differences are those of the
    // steady clock.
    std::vector<int64_t>& machine = days[MachineOf(clock)];
    std::ranges::sort(machine);
    begins.push_back(clock.steady_ns + machine[machine.size() / 2]);
  }
  TimelineShifts shifts;
  shifts.machine_count = days.size();
  // The earliest file begins at 0, so all times stay small and exact in a double.
  const int64_t origin = begins.empty() ? 0 : *std::ranges::min_element(begins);
  for (const int64_t begin : begins) {
    shifts.us.push_back(static_cast<double>(begin - origin) / 1000.0);
  }
  shifts.how =
      shifts.machine_count <= 1
          ? "the steady clock of the machine"
          : fmt::format("the steady clock within a machine, the times of day between {} machines",
                        shifts.machine_count);
  return shifts;
}

}  // namespace lmdbio::tools
