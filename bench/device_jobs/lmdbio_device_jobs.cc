// lmdbio-device-jobs: figures of several ranks on one GPU, in processes that it starts itself.
#include <memory>

#include "bench/device_jobs/job_kinds.h"
#include "bench/device_jobs/part_plan.h"
#include "bench/device_jobs/rival_rows.h"
#include "bench/on_device/figure_program.h"

namespace lmdbio::figures {
namespace {

constexpr const char* kSummary = "Figures of several ranks that share a GPU, against other ways.";
constexpr const char* kDetails =
    "D3 AllReduce of placed values against the floor, D4 against Gloo, symmetric memory, NCCL and\n"
    "serial staging, D5 staging in chunks, D6 messages with kernels that add, D9 the host's time "
    "of\n"
    "an iteration, D10 exposed communication, D13 a rank that is killed. Each job has processes "
    "of\n"
    "its own and a limit of time. A result that is not the serial sum of the host fails its row.";

std::vector<FigurePart> Plan(const FigureSettings& options, const tools::Invocation& invocation) {
  const auto scene = std::make_shared<JobScene>();
  return {PlanPlaced(options, scene),
          PlanRivals(options, invocation, scene),
          PlanStaged(options, scene),
          PlanWires(options, scene),
          PlanSteps(options, invocation, scene),
          PlanOverlap(options, scene),
          PlanKilled(options, scene)};
}

}  // namespace
}  // namespace lmdbio::figures

int main(int argc, char** argv) {
  using namespace lmdbio::figures;
  if (const auto code = PlayJobIfAsked(argc, argv)) return *code;
  return RunFigures({.name = "lmdbio-device-jobs",
                     .summary = kSummary,
                     .details = kDetails,
                     .plan = &Plan,
                     .describe = &DescribeRivals,
                     .size_max = "512M"},
                    argc, argv);
}
