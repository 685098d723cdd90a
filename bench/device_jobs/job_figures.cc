// D6, D9, D10, D13: ranks that send messages, iterations of a trainer, and a rank that ends.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/device_jobs/part_plan.h"
#include "bench/device_jobs/resnet50_list.h"
#include "bench/device_jobs/rival_rows.h"
#include "bench/spread.h"

namespace lmdbio::figures {
namespace {

constexpr int kWireRanks = 4;
constexpr int kKillRanks = 4;
constexpr uint64_t kKillBytes = 16 * kMebi;
constexpr uint64_t kWorkBytes = 256 * kMebi;

std::vector<uint64_t> WireSizes(const FigureSettings& options) {
  if (options.is_quick) return {64 << 10, 16 * kMebi, 64 * kMebi};
  return {64 << 10, kMebi, 16 * kMebi, 64 * kMebi, 256 * kMebi};
}

JobSpec WireJob(const FigureSettings& options, const std::string& variant) {
  JobSpec spec = JobOf(options, "wire");
  spec.variant = variant;
  spec.rank_count = kWireRanks;
  spec.are_threads = true;
  for (const uint64_t size_bytes : WireSizes(options)) {
    spec.sizes.push_back(options.AtMost(size_bytes));
  }
  spec.sizes.erase(std::ranges::unique(spec.sizes).begin(), spec.sizes.end());
  return spec;
}

JobSpec IterationJob(const FigureSettings& options, const std::string& kind) {
  JobSpec spec = JobOf(options, kind);
  spec.variant = "placed";
  spec.rank_count = 2;
  spec.sizes = {options.AtMost(kWorkBytes), options.AtMost(kWorkBytes)};
  return spec;
}

Way SamplesOf(const JobSpec& spec, const std::string& measure, const std::string& note = "") {
  return [=](FigureRun& run, JobScene& scene) -> Result<Measured> {
    LMDBIO_TRY(auto samples,
               scene.runs.Samples(spec, measure, std::min(kJobSecondsMax, run.SecondsLeft())));
    return Measured{std::move(samples), note};
  };
}

// The largest of all survivors, for each job.
Way WorstOf(const std::vector<JobSpec>& jobs, const std::string& measure) {
  return [=](FigureRun& run, JobScene& scene) -> Result<Measured> {
    Measured measured;
    for (const JobSpec& spec : jobs) {
      const double seconds = std::min(kJobSecondsMax, run.SecondsLeft());
      const auto rows = scene.runs.Rows(spec, measure, seconds);
      double worst = 0;
      for (const probe::ProbeRow& row : rows) {
        if (row.state != probe::RowState::kYes) return Fail(ErrorCode::kInternal, row.note);
        worst = std::max(worst, tools::SpreadOf(row.samples).max);
        if (!row.note.empty()) measured.note = row.note;
      }
      if (static_cast<int>(rows.size()) < spec.rank_count - 1) {
        // The reason of a rank that has said nothing.
        LMDBIO_TRY_VOID(scene.runs.Samples(spec, "missing", seconds).map([](const auto&) {}));
        return Fail(ErrorCode::kInternal, "a survivor has said nothing");
      }
      measured.samples.push_back(worst);
    }
    return measured;
  };
}

}  // namespace

FigurePart PlanWires(const FigureSettings& options, std::shared_ptr<JobScene> scene) {
  PartPlan plan(
      "D6", fmt::format("messages of {} ranks, kernels that add by a CPU that adds", kWireRanks));
  for (const char* const algorithm : {"ring", "halving"}) {
    for (const std::string link : {"memory", "loopback"}) {
      const JobSpec by_gpu = WireJob(options, fmt::format("{} {} gpu", algorithm, link));
      const JobSpec by_host = WireJob(options, fmt::format("{} {} host", algorithm, link));
      for (const uint64_t size_bytes : WireSizes(options)) {
        const bool has_bar = link == "memory" && size_bytes >= 16 * kMebi;
        const std::string name = fmt::format("{}, {}, {}", algorithm, link, SizeWords(size_bytes));
        plan.Add(name + ", time", "ratio", has_bar ? AtMost(0.7) : NoBar(),
                 [=](FigureRun& run, JobScene& jobs) {
                   return RatioOf(run, TimesOf(run, jobs, by_gpu, "gpu", size_bytes),
                                  TimesOf(run, jobs, by_host, "host", size_bytes), size_bytes);
                 });
        plan.Add(name + ", processor time", "ratio", has_bar ? AtMost(0.3) : NoBar(),
                 [=](FigureRun& run, JobScene& jobs) {
                   return RatioOf(run, TimesOf(run, jobs, by_gpu, "gpu processor", size_bytes),
                                  TimesOf(run, jobs, by_host, "host processor", size_bytes),
                                  size_bytes);
                 });
      }
    }
  }
  return plan.Take(std::move(scene));
}

FigurePart PlanSteps(const FigureSettings& options, const tools::Invocation& invocation,
                     std::shared_ptr<JobScene> scene) {
  PartPlan plan("D9", "the host in an iteration of 161 gradients, 2 processes, the GPU busy");
  const RivalPrograms programs = RivalProgramsOf(invocation);
  for (const std::string order : {"host", "event", "mark"}) {
    JobSpec spec = IterationJob(options, "step");
    spec.order = order;
    const bool has_bar = order != "host";  // the host waits for the GPU there
    plan.Add(fmt::format("order {}, hooks and synchronize()", order), "ms",
             has_bar ? AtMost(1) : NoBar(), SamplesOf(spec, "host"));
    plan.Add(fmt::format("order {}, helper thread by a core", order), "ratio",
             has_bar ? AtMost(0.02) : NoBar(), SamplesOf(spec, "helper"));
    plan.Add(fmt::format("order {}, iterations without a call that waits for the GPU", order),
             "ratio", has_bar ? AtLeast(1) : NoBar(),
             SamplesOf(spec, "busy", "1: all calls had returned while the GPU was busy"));
    plan.Add(fmt::format("order {}, hooks and synchronize() by Gloo's hooks of DDP", order),
             "ratio", NoBar(), [=](FigureRun& run, JobScene& jobs) -> Result<Measured> {
               std::vector<uint64_t> counts;
               for (const EmulatedGradient& one : Resnet50Gradients()) {
                 counts.push_back(std::min(one.count, spec.sizes[0] / sizeof(float)));
               }
               LMDBIO_TRY(const auto theirs, HookTimes(run, jobs, programs, counts));
               LMDBIO_TRY(Measured figure, SamplesOf(spec, "host")(run, jobs));
               const double other = tools::SpreadOf(theirs).median;
               for (double& sample : figure.samples) sample /= other;
               figure.note = fmt::format("theirs {:.2f} ms", other);
               return figure;
             });
  }
  return plan.Take(std::move(scene));
}

FigurePart PlanOverlap(const FigureSettings& options, std::shared_ptr<JobScene> scene) {
  PartPlan plan("D10", "ResNet-50 with emulated kernels, 2 threads of one process");
  JobSpec spec = IterationJob(options, "overlap");
  spec.are_threads = true;
  plan.Add("exposed by communication alone", "ratio", AtMost(0.15), SamplesOf(spec, "exposed"));
  plan.Add("communication alone", "ms", NoBar(), SamplesOf(spec, "sums"));
  plan.Add("emulated kernels alone", "ms", NoBar(), SamplesOf(spec, "work"));
  return plan.Take(std::move(scene));
}

FigurePart PlanKilled(const FigureSettings& options, std::shared_ptr<JobScene> scene) {
  PartPlan plan("D13", fmt::format("one of {} processes is killed", kKillRanks));
  for (const std::string order : {"host", "event", "mark"}) {
    std::vector<JobSpec> jobs;
    for (int trial = 0; trial < (options.is_quick ? 1 : 3); ++trial) {
      JobSpec spec = JobOf(options, "kill");
      spec.variant = "placed";
      spec.order = order;
      spec.rank_count = kKillRanks;
      spec.sizes = {options.AtMost(kKillBytes)};
      spec.sample_count = trial + 1;  // so that each is a job of its own
      jobs.push_back(std::move(spec));
    }
    plan.Add(fmt::format("order {}, until the others have the error", order), "s", AtMost(5),
             WorstOf(jobs, "error"));
    // A stream that waits for the event of a dead process may wait for ever.
    plan.Add(fmt::format("order {}, until their streams are done", order), "s",
             order == "event" ? NoBar() : AtMost(5), WorstOf(jobs, "drain"));
    plan.Add(fmt::format("order {}, their GPU copies afterwards", order), "ratio", AtLeast(1),
             WorstOf(jobs, "works"));
  }
  plan.Add("NCCL, until the others have the error", "s", NoBar(),
           [](FigureRun&, JobScene&) -> Result<Measured> {
             return Fail(ErrorCode::kUnsupported, "needs 2 GPUs: NCCL refuses two ranks on one");
           });
  return plan.Take(std::move(scene));
}

}  // namespace lmdbio::figures
