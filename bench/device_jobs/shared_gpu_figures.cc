// D3, D4, D5: an AllReduce of several ranks on one GPU.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/device_jobs/part_plan.h"
#include "bench/device_jobs/rival_rows.h"
#include "bench/on_device/device_timer.h"
#include "bench/on_device/roofs.h"
#include "bench/spread.h"

namespace lmdbio::figures {
namespace {

constexpr uint64_t kRoofBytes = 256 * kMebi;
constexpr uint64_t kUsualBufferBytes = 32 * kMebi;
constexpr int kRankCounts[] = {2, 4, 8};

// Bytes/s of a copy.
template <typename Copy>
Result<double> RateOf(FigureRun& run) {
  LMDBIO_TRY(const Copy copy, Copy::Make(run.device(), run.options().AtMost(kRoofBytes)));
  LMDBIO_TRY(DeviceTimer timer, DeviceTimer::Make(run.device()));
  const Enqueue enqueue = [&] { return copy.EnqueueOn(timer.stream()); };
  LMDBIO_TRY(const int repeats, timer.RepeatsFor(enqueue, run.options().sample_seconds));
  std::vector<double> rates;
  for (int i = 0; i < run.options().sample_count; ++i) {
    LMDBIO_TRY(const double seconds, timer.Time(enqueue, repeats));
    rates.push_back(copy.moved_bytes() / seconds);
  }
  return tools::SpreadOf(std::move(rates)).median;
}

// While no job runs, because jobs would share the device with it.
Result<double> DeviceRoof(FigureRun& run, JobScene& scene) {
  if (!scene.device_roof) {
    LMDBIO_TRY(scene.device_roof, RateOf<DeviceCopy>(run));
  }
  return *scene.device_roof;
}
Result<double> PinnedRoof(FigureRun& run, JobScene& scene) {
  if (!scene.pinned_roof) {
    LMDBIO_TRY(scene.pinned_roof, RateOf<PinnedCopy>(run));
  }
  return *scene.pinned_roof;
}

// The time that the device needs to read and write the values of all ranks once, by the time of a
// call.
Result<Measured> ShareOfFloor(FigureRun& run, JobScene& scene, const JobSpec& spec,
                              uint64_t size_bytes) {
  LMDBIO_TRY(const double roof, DeviceRoof(run, scene));
  LMDBIO_TRY(const auto times, TimesOf(run, scene, spec, spec.variant, size_bytes));
  const auto bytes = static_cast<double>(run.options().AtMost(size_bytes));
  const double floor_us = 2 * spec.rank_count * bytes / roof * kMicro;
  Measured figure;
  for (const double time : times) figure.samples.push_back(floor_us / time);
  figure.note =
      fmt::format("{:.1f} us, floor {:.1f} us, roof {:.0f} GB/s{}", tools::SpreadOf(times).median,
                  floor_us, roof / 1e9, SizeNote(run, size_bytes));
  return figure;
}

void AddFloorRow(PartPlan& plan, const JobSpec& spec, uint64_t size_bytes, Bar bar) {
  const std::string who =
      fmt::format("{} {}", RankWords(spec.rank_count), spec.are_threads ? "threads" : "processes");
  plan.Add(
      fmt::format("{}, {}, floor by time", who, SizeWords(size_bytes)), "ratio", bar,
      [=](FigureRun& run, JobScene& scene) { return ShareOfFloor(run, scene, spec, size_bytes); });
}

// Small values: the floor tells nothing.
void AddTimeRow(PartPlan& plan, const JobSpec& spec, uint64_t size_bytes) {
  const std::string who =
      fmt::format("{} {}", RankWords(spec.rank_count), spec.are_threads ? "threads" : "processes");
  plan.Add(fmt::format("{}, {}, time", who, SizeWords(size_bytes)), "us", NoBar(),
           [=](FigureRun& run, JobScene& scene) -> Result<Measured> {
             LMDBIO_TRY(auto times, TimesOf(run, scene, spec, spec.variant, size_bytes));
             return Measured{std::move(times), SizeNote(run, size_bytes)};
           });
}

Bar BarOfProcesses(int rank_count, uint64_t size_bytes) {
  if (size_bytes == 512 * kMebi && rank_count <= 4) return AtLeast(0.80);
  if (size_bytes == 64 * kMebi) return AtLeast(0.50);
  return NoBar();
}

void AddOrders(PartPlan& plan, const FigureSettings& options) {
  JobSpec by_host = ReduceJob(options, "placed", 4);
  by_host.order = "host";
  by_host.sizes = {8, options.AtMost(kMebi), options.AtMost(64 * kMebi)};
  for (const char* const order : {"event", "mark"}) {
    JobSpec spec = by_host;
    spec.order = order;
    for (const uint64_t size_bytes : {uint64_t{8}, kMebi, 64 * kMebi}) {
      plan.Add(fmt::format("{} processes, {}, order {} by order host", RankWords(4),
                           SizeWords(size_bytes), order),
               "ratio", NoBar(), [=](FigureRun& run, JobScene& scene) {
                 return RatioOf(run, TimesOf(run, scene, spec, "placed", size_bytes),
                                TimesOf(run, scene, by_host, "placed", size_bytes), size_bytes);
               });
    }
  }
}

// The cost of a placed tensor that is larger than the buffer.
void AddPieces(PartPlan& plan, const FigureSettings& options) {
  constexpr uint64_t kBytes = 512 * kMebi;
  const JobSpec whole = ReduceJob(options, "placed", 2);
  JobSpec pieces = whole;
  pieces.sizes = {options.AtMost(kBytes)};
  pieces.buffer_bytes = std::min(kUsualBufferBytes, std::max<uint64_t>(pieces.sizes[0] / 16, 256));
  plan.Add(fmt::format("{} processes, {}, in 16 pieces by in one", RankWords(2), SizeWords(kBytes)),
           "ratio", NoBar(), [=](FigureRun& run, JobScene& scene) {
             return RatioOf(run, TimesOf(run, scene, pieces, "placed", kBytes),
                            TimesOf(run, scene, whole, "placed", kBytes), kBytes);
           });
}

Bar BarOfRival(const std::string& rival, uint64_t size_bytes) {
  if (rival == kGlooRival) {
    if (size_bytes >= kMebi) return AtMost(0.1);
    return size_bytes == 8 ? AtMost(0.2) : NoBar();
  }
  return rival == kSymmetricRival ? AtMost(1.0) : NoBar();
}

std::vector<int> RivalRankCounts(const FigureSettings& options) {
  return options.is_quick ? std::vector<int>{2} : std::vector<int>{2, 4, 8};
}

}  // namespace

FigurePart PlanPlaced(const FigureSettings& options, std::shared_ptr<JobScene> scene) {
  PartPlan plan("D3", "AllReduce of ranks on one GPU, placed, against 2 P S bytes by the roof");
  for (const int rank_count : kRankCounts) {
    const JobSpec spec = ReduceJob(options, "placed", rank_count);
    for (const uint64_t size_bytes : PlacedSizes(options)) {
      if (size_bytes < 16 * kMebi) {
        AddTimeRow(plan, spec, size_bytes);
      } else {
        AddFloorRow(plan, spec, size_bytes, BarOfProcesses(rank_count, size_bytes));
      }
    }
  }
  for (const int rank_count : kRankCounts) {
    JobSpec spec = ReduceJob(options, "placed", rank_count);
    spec.are_threads = true;
    spec.sizes = {8, options.AtMost(64 * kMebi)};
    AddTimeRow(plan, spec, 8);
    AddFloorRow(plan, spec, 64 * kMebi, AtLeast(0.90));
  }
  AddOrders(plan, options);
  AddPieces(plan, options);
  return plan.Take(std::move(scene));
}

FigurePart PlanRivals(const FigureSettings& options, const tools::Invocation& invocation,
                      std::shared_ptr<JobScene> scene) {
  PartPlan plan("D4", "the same against other ways, time by their time");
  const RivalPrograms programs = RivalProgramsOf(invocation);
  for (const int rank_count : RivalRankCounts(options)) {
    const JobSpec placed = ReduceJob(options, "placed", rank_count);
    const JobSpec serial = SerialJob(options, rank_count);
    for (const uint64_t size_bytes : RivalSizes(options)) {
      const Bar bar = size_bytes >= 16 * kMebi ? AtMost(0.2) : NoBar();
      plan.Add(fmt::format("{}, {}, serial staging", RankWords(rank_count), SizeWords(size_bytes)),
               "ratio", bar, [=](FigureRun& run, JobScene& scene_of_run) {
                 return RatioOf(run, TimesOf(run, scene_of_run, placed, "placed", size_bytes),
                                TimesOf(run, scene_of_run, serial, "serial", size_bytes),
                                size_bytes);
               });
    }
    for (const char* const rival : {kGlooRival, kSymmetricRival, kNcclRival}) {
      for (const uint64_t size_bytes : RivalSizes(options)) {
        plan.Add(fmt::format("{}, {}, {}", RankWords(rank_count), SizeWords(size_bytes), rival),
                 "ratio", BarOfRival(rival, size_bytes),
                 [=](FigureRun& run, JobScene& scene_of_run) -> Result<Measured> {
                   // Theirs first, because it often says why there is none.
                   LMDBIO_TRY(auto theirs, RivalTimes(run, scene_of_run, programs, rank_count,
                                                      rival, size_bytes));
                   return RatioOf(run, TimesOf(run, scene_of_run, placed, "placed", size_bytes),
                                  std::move(theirs), size_bytes);
                 });
      }
    }
  }
  return plan.Take(std::move(scene));
}

FigurePart PlanStaged(const FigureSettings& options, std::shared_ptr<JobScene> scene) {
  PartPlan plan("D5", "values that pass through the host in overlapping chunks, 2 processes");
  const JobSpec staged = ReduceJob(options, "staged", 2);
  const JobSpec serial = SerialJob(options, 2);
  for (const uint64_t size_bytes : RivalSizes(options)) {
    plan.Add(fmt::format("{}, time by serial staging", SizeWords(size_bytes)), "ratio",
             size_bytes >= 16 * kMebi ? AtMost(0.6) : NoBar(),
             [=](FigureRun& run, JobScene& scene_of_run) {
               return RatioOf(run, TimesOf(run, scene_of_run, staged, "staged", size_bytes),
                              TimesOf(run, scene_of_run, serial, "serial", size_bytes), size_bytes);
             });
  }
  for (const uint64_t size_bytes : RivalSizes(options)) {
    if (size_bytes < 16 * kMebi) continue;
    plan.Add(
        fmt::format("{}, bytes to the device by the rate of a pinned copy", SizeWords(size_bytes)),
        "ratio", AtLeast(0.8), [=](FigureRun& run, JobScene& scene_of_run) -> Result<Measured> {
          LMDBIO_TRY(const double roof, PinnedRoof(run, scene_of_run));
          LMDBIO_TRY(const auto times, TimesOf(run, scene_of_run, staged, "staged", size_bytes));
          const auto bytes = static_cast<double>(run.options().AtMost(size_bytes));
          Measured figure;
          for (const double time : times) {
            figure.samples.push_back(staged.rank_count * bytes / roof * kMicro / time);
          }
          figure.note =
              fmt::format("pinned copy {:.1f} GB/s{}", roof / 1e9, SizeNote(run, size_bytes));
          return figure;
        });
  }
  return plan.Take(std::move(scene));
}

}  // namespace lmdbio::figures
