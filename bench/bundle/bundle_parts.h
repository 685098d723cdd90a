// bench/bundle/bundle_parts.h - the parts of a run of the bundle: programs that print rows.
//
// Source: docs/device_bundle.md
#ifndef LMDBIO_BENCH_BUNDLE_BUNDLE_PARTS_H_
#define LMDBIO_BENCH_BUNDLE_BUNDLE_PARTS_H_

#include <filesystem>
#include <string>
#include <vector>

namespace lmdbio::bundle {

struct BundleOptions {
  std::filesystem::path programs;  // the folder with all of them
  int ordinal = 0;
  bool is_quick = false;
  std::string python;        // the command for programs of Python
  std::string probe_report;  // a file that the probe may write
};

struct BundlePart {
  std::string name;
  std::vector<std::string> ids;    // of its rows
  std::vector<std::string> words;  // the command
  std::string seconds_option;      // which takes the time that the part has; empty: there is none
  double seconds_max = 0;
  bool is_probe = false;  // its rows are in its report, and not in its output
  // Why the part cannot run; empty: it can.
  std::string obstacle = {};
};

// All parts, in their order: those that tell most come first.
std::vector<BundlePart> PlanParts(const BundleOptions& options);

// The command that names the GPU and does nothing else. Its exit code is 77 if there is none.
std::vector<std::string> GpuCommand(const BundleOptions& options);

}  // namespace lmdbio::bundle
#endif  // LMDBIO_BENCH_BUNDLE_BUNDLE_PARTS_H_
