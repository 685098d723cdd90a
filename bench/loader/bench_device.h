// bench/loader/bench_device.h - the device probe as a command of lmdbio-bench, with MPI.
#ifndef LMDBIO_BENCH_LOADER_BENCH_DEVICE_H_
#define LMDBIO_BENCH_LOADER_BENCH_DEVICE_H_

#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"
#include "tools/cli/cli.h"

namespace lmdbio::tools {

// Collective. Rank 0 runs the probe; the others wait for it. With several ranks of MPI the probe
// registers a window of theirs, too.
// Errors: as probe::RunProbe on rank 0
Status ProbeDevice(ranks::Group& group, const Invocation& invocation,
                   const std::string& command_line);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_DEVICE_H_
