// bench/on_device/figure_run.h - the rows of one id, and what the code sees that measures them.
//
// A part names its rows before it measures any. So a row that was not measured is told, too.
#ifndef LMDBIO_BENCH_ON_DEVICE_FIGURE_RUN_H_
#define LMDBIO_BENCH_ON_DEVICE_FIGURE_RUN_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/on_device/figure_report.h"
#include "bench/on_device/figure_row.h"
#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/driver_table.h"
#include "tools/cli/cli.h"

namespace lmdbio::figures {

inline constexpr uint64_t kMebi = uint64_t{1} << 20;
inline constexpr double kMicro = 1e6;  // microseconds of a second

inline double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The options of all programs.
struct FigureSettings {
  int ordinal = 0;
  int sample_count = 20;
  double sample_seconds = 0;  // shorter work is repeated within a sample
  uint64_t size_bytes_max = 0;
  bool is_quick = false;  // fewer rows

  uint64_t AtMost(uint64_t size_bytes) const {
    return size_bytes < size_bytes_max ? size_bytes : size_bytes_max;
  }
};

struct Measured {
  std::vector<double> samples;
  std::string note = {};
  // Why the bar is not for what was found here. Then the row is left out; empty otherwise.
  std::string left_out = {};
};

class FigureRun;

struct FigurePart {
  std::string id;
  std::string title;
  // Rows that nothing is told about have failed, by the error if there is one.
  std::function<Status(FigureRun& run)> measure;
  std::vector<FigureRow> rows = {};

  void Plan(std::string name, std::string unit, Bar bar) {
    rows.push_back({.id = id, .name = std::move(name), .unit = std::move(unit), .bar = bar});
  }
};

// The parts of a run that do not change.
struct FigureScene {
  FigureSettings options = {};
  const tools::Invocation* invocation = nullptr;  // for a program's own options
  const device::DriverTable* driver = nullptr;
  std::shared_ptr<device::Device> device = nullptr;
  double seconds_end = 0;  // by SecondsNow()
};

// A part that is being measured. Threads: one
class FigureRun {
 public:
  FigureRun(const FigureScene& scene, const FigurePart& part, FigureReport& report)
      : scene_(scene), part_(part), report_(report) {}

  const FigureSettings& options() const { return scene_.options; }
  const tools::Invocation& invocation() const { return *scene_.invocation; }
  const device::DriverTable& driver() const { return *scene_.driver; }
  device::Device& device() const { return *scene_.device; }
  const std::shared_ptr<device::Device>& shared_device() const { return scene_.device; }
  double SecondsLeft() const { return scene_.seconds_end - SecondsNow(); }

  // Measures a row that was planned, if there is time. By an error the row has failed.
  void Measure(const std::string& name, const std::function<Result<Measured>()>& measure);
  // Why a planned row cannot be measured on this machine.
  void LeaveOut(const std::string& name, const std::string& why);
  // The same for all planned rows that nothing was told about yet.
  void LeaveOutRest(const std::string& why);

  // Measures the part, and tells of each of its rows.
  // Errors: kIo  the report cannot be written
  Status RunPart();

 private:
  void Tell(const std::string& name, FigureState state, Measured measured);
  void TellRest(FigureState state, const std::string& note);

  const FigureScene& scene_;
  const FigurePart& part_;
  FigureReport& report_;
  std::set<std::string> told_;
  Status written_;
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_FIGURE_RUN_H_
