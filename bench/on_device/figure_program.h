// bench/on_device/figure_program.h - the main function of programs that measure figures of a GPU.
//
// Source: docs/device_figures.md
#ifndef LMDBIO_BENCH_ON_DEVICE_FIGURE_PROGRAM_H_
#define LMDBIO_BENCH_ON_DEVICE_FIGURE_PROGRAM_H_

#include <vector>

#include "bench/on_device/figure_run.h"
#include "tools/cli/cli.h"

namespace lmdbio::figures {

inline constexpr int kExitWithoutGpu = 77;

struct FigureProgram {
  const char* name;
  const char* summary;
  const char* details;
  // All parts, in the order of the report. Throws Misuse for options that are out of range.
  std::vector<FigurePart> (*plan)(const FigureSettings& options,
                                  const tools::Invocation& invocation);
  // Options of its own.
  void (*describe)(tools::po::options_description_easy_init options) = nullptr;
  const char* size_max = "256M";  // the default of --size-max
};

// Opens the driver and the GPU, and measures the parts of --only.
// Returns: 0 if rows were measured, none has failed, and every bar is held; 77 without a GPU; 2 for
//          a wrong command line; otherwise 1
int RunFigures(const FigureProgram& program, int argc, char** argv);

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_FIGURE_PROGRAM_H_
