// bench/device_jobs/rival_rows.h - the rows of rivals.py, which times PyTorch's ways.
#ifndef LMDBIO_BENCH_DEVICE_JOBS_RIVAL_ROWS_H_
#define LMDBIO_BENCH_DEVICE_JOBS_RIVAL_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "bench/device_jobs/part_plan.h"
#include "bench/on_device/figure_run.h"
#include "lmdbio/base/status.h"
#include "tools/cli/cli.h"

namespace lmdbio::figures {

// Their names in the rows of rivals.py.
inline constexpr const char* kGlooRival = "Gloo on CUDA tensors";
inline constexpr const char* kSymmetricRival = "PyTorch symmetric memory";
inline constexpr const char* kNcclRival = "NCCL with host ids";
inline constexpr const char* kHooksRival = "Gloo by the hooks of DDP";

struct RivalPrograms {
  std::string python;
  std::string script;
};

// The options --python and --rivals; by default rivals.py beside this program.
void DescribeRivals(tools::po::options_description_easy_init options);
RivalPrograms RivalProgramsOf(const tools::Invocation& invocation);

// Microseconds of an AllReduce by a rival.
// Errors: kUnsupported  no Python, no PyTorch, no GPU for PyTorch; or the rival fails, which is no
//                       failure of lmdbio
Result<std::vector<double>> RivalTimes(FigureRun& run, JobScene& scene,
                                       const RivalPrograms& programs, int rank_count,
                                       const std::string& rival, uint64_t size_bytes);

// Milliseconds of the host in the hooks of PyTorch's DDP with Gloo, 2 ranks and these gradients.
// counts  [elements of each]
// Errors: as RivalTimes
Result<std::vector<double>> HookTimes(FigureRun& run, JobScene& scene,
                                      const RivalPrograms& programs,
                                      const std::vector<uint64_t>& counts);

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_DEVICE_JOBS_RIVAL_ROWS_H_
