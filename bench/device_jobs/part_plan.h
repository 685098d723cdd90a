// bench/device_jobs/part_plan.h - a part of the figures, each row with the way to measure it.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_PART_PLAN_H_
#define LMDBIO_BENCH_DEVICE_JOBS_PART_PLAN_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/device_jobs/job_runs.h"
#include "bench/on_device/figure_run.h"
#include "lmdbio/base/status.h"

namespace lmdbio::figures {

inline constexpr double kJobSecondsMax = 60;

// Shared by the rows of all parts while they are measured.
struct JobScene {
  JobRuns runs;
  std::optional<double> device_roof;  // bytes/s, read and written
  std::optional<double> pinned_roof;  // bytes/s to the device
};

// One row. An error of kUnsupported or kResourceExhausted leaves it out, any other is a failure.
using Way = std::function<Result<Measured>(FigureRun& run, JobScene& scene)>;

inline bool IsRefusal(const Error& error) {
  return error.code() == ErrorCode::kUnsupported || error.code() == ErrorCode::kResourceExhausted;
}

class PartPlan {
 public:
  PartPlan(std::string id, std::string title) {
    part_.id = std::move(id);
    part_.title = std::move(title);
  }

  void Add(const std::string& name, std::string unit, Bar bar, Way way) {
    part_.Plan(name, std::move(unit), bar);
    ways_.emplace_back(name, std::move(way));
  }

  FigurePart Take(std::shared_ptr<JobScene> scene) {
    part_.measure = [ways = std::move(ways_), scene = std::move(scene)](FigureRun& run) -> Status {
      for (const auto& [name, way] : ways) {
        if (run.SecondsLeft() <= 0) {
          run.LeaveOut(name, "the time of --seconds-max was over");
          continue;
        }
        Result<Measured> figure = way(run, *scene);
        if (!figure && IsRefusal(figure.error())) {
          run.LeaveOut(name, figure.error().message());
        } else {
          run.Measure(name, [&] { return std::move(figure); });
        }
      }
      return {};
    };
    return std::move(part_);
  }

 private:
  FigurePart part_;
  std::vector<std::pair<std::string, Way>> ways_;
};

// --- Parts, in the order of the report ---
FigurePart PlanPlaced(const FigureSettings& options, std::shared_ptr<JobScene> scene);  // D3
FigurePart PlanRivals(const FigureSettings& options, const tools::Invocation& invocation,
                      std::shared_ptr<JobScene> scene);                                 // D4
FigurePart PlanStaged(const FigureSettings& options, std::shared_ptr<JobScene> scene);  // D5
FigurePart PlanWires(const FigureSettings& options, std::shared_ptr<JobScene> scene);   // D6
FigurePart PlanSteps(const FigureSettings& options, const tools::Invocation& invocation,
                     std::shared_ptr<JobScene> scene);                                   // D9
FigurePart PlanOverlap(const FigureSettings& options, std::shared_ptr<JobScene> scene);  // D10
FigurePart PlanKilled(const FigureSettings& options, std::shared_ptr<JobScene> scene);   // D13

// --- Their jobs ---

// Of the options of all programs.
JobSpec JobOf(const FigureSettings& options, std::string kind);
// An AllReduce of P ranks by this variant: the same job for all figures that compare with it.
JobSpec ReduceJob(const FigureSettings& options, const std::string& variant, int rank_count);
JobSpec SerialJob(const FigureSettings& options, int rank_count);
// Sizes of reductions between 8 B and 512 MiB, and those that are compared with rivals.
std::vector<uint64_t> PlacedSizes(const FigureSettings& options);
std::vector<uint64_t> RivalSizes(const FigureSettings& options);

// Microseconds of a call. The name of a row has `size_bytes`, and --size-max may make it smaller.
Result<std::vector<double>> TimesOf(FigureRun& run, JobScene& scene, const JobSpec& spec,
                                    const std::string& what, uint64_t size_bytes);
// The time of one job by the median of another.
Result<Measured> RatioOf(FigureRun& run, Result<std::vector<double>> times,
                         Result<std::vector<double>> others, uint64_t size_bytes);
// "P = 4"
std::string RankWords(int rank_count);
// "" or that the size was bounded.
std::string SizeNote(const FigureRun& run, uint64_t size_bytes);

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_PART_PLAN_H_
