// bench/device/device_probe.h - what a GPU, its driver and its memory can do here (Q1 to Q9).
//
// Source: docs/device_probe.md
#ifndef LMDBIO_BENCH_DEVICE_DEVICE_PROBE_H_
#define LMDBIO_BENCH_DEVICE_DEVICE_PROBE_H_

#include <functional>
#include <optional>
#include <string>

#include "bench/device/probe_part.h"
#include "lmdbio/base/status.h"
#include "tools/cli/cli.h"

namespace lmdbio::probe {

// The part of a run that the program around the probe decides.
struct ProbeSetting {
  std::string command_line = {};
  // Memory of a window of MPI, with the size that the probe asks for; null if the program has none,
  // because `why_no_window`.
  std::function<Result<MutableBytes>(uint64_t size_bytes)> window = nullptr;
  std::string why_no_window = "needs MPI: mpirun -n 2 lmdbio-bench device";
};

// The options of the command.
void DescribeProbe(tools::po::options_description_easy_init options);
inline constexpr const char* kProbeSummary =
    "Measures what a GPU, its driver and the memory can do.";
extern const char* const kProbeDetails;

// Throws Misuse. For programs of several ranks: all call it, and one calls RunProbe.
void CheckProbeOptions(const tools::Invocation& invocation);

// Runs all trials and writes the report. Starts this program again for each trial, so main begins
// with PlayPartIfAsked.
// Errors: kNotFound     no driver, no GPU, or none of this ordinal
//         kUnsupported  the driver is too old
//         kIo           a report cannot be written
//         others        as the driver has them, before the first trial
Status RunProbe(const tools::Invocation& invocation, const ProbeSetting& setting);

}  // namespace lmdbio::probe
#endif  // LMDBIO_BENCH_DEVICE_DEVICE_PROBE_H_
