#include "bench/bundle/bundle_parts.h"

#include <array>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>

#include <unistd.h>

namespace lmdbio::bundle {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr const char* kSanitizer = "compute-sanitizer";

// In a folder of PATH, or where the vendor's toolkit has it.
std::optional<fs::path> FindSanitizer() {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(std::string(path != nullptr ? path : "") + ":/usr/local/cuda/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    fs::path program = fs::path(folder) / kSanitizer;
    if (::access(program.c_str(), X_OK) == 0) return program;
  }
  return std::nullopt;
}

// The words of every program.
Words CommonWords(const fs::path& program, const BundleOptions& options) {
  Words words = {program.string(), "--device", std::to_string(options.ordinal)};
  if (options.is_quick) words.emplace_back("--quick");
  return words;
}

BundlePart RowsPart(std::string name, Words ids, const char* program, double seconds_max,
                    const BundleOptions& options) {
  const fs::path path = options.programs / program;
  BundlePart part = {.name = std::move(name),
                     .ids = std::move(ids),
                     .words = CommonWords(path, options),
                     .seconds_option = "--seconds-max",
                     .seconds_max = seconds_max};
  part.words.insert(part.words.end(), {"--json", "-"});
  if (!fs::exists(path)) part.obstacle = "this bundle has no " + std::string(program);
  return part;
}

BundlePart ProbePart(const BundleOptions& options) {
  BundlePart part = {.name = "probe",
                     .ids = {"Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8", "Q9"},
                     .words = {(options.programs / "lmdbio-device-probe").string(), "--device",
                               std::to_string(options.ordinal), "--python", options.python,
                               "--json", options.probe_report},
                     .seconds_option = "--seconds",
                     .seconds_max = 110,
                     .is_probe = true};
  if (options.is_quick) {
    part.words.insert(part.words.end(),
                      {"--repeat", "2", "--size-max", "1M", "--drain-seconds", "0.3"});
  }
  if (!fs::exists(part.words[0])) part.obstacle = "this bundle has no lmdbio-device-probe";
  return part;
}

BundlePart PythonPart(const BundleOptions& options) {
  BundlePart part = RowsPart("checks of PyTorch", {"C7"}, "torch_checks.py", 70, options);
  part.words.insert(part.words.begin(), {options.python, "-B"});
  return part;
}

// The tools see only what happens in one process, so the kernels are enough.
BundlePart SanitizerPart(const BundleOptions& options, const char* tool) {
  BundlePart part =
      RowsPart(std::string("sanitizer ") + tool, {"C8"}, "lmdbio-device-checks", 30, options);
  const auto sanitizer = FindSanitizer();
  if (!sanitizer) part.obstacle = "this machine has no compute-sanitizer";
  if (sanitizer) {
    part.words.insert(part.words.begin(),
                      {sanitizer->string(), "--tool", tool, "--target-processes", "all",
                       "--report-api-errors", "no", "--error-exitcode", "9"});
  }
  if (!options.is_quick) part.words.emplace_back("--quick");
  part.words.insert(part.words.end(), {"--only", "C1"});
  return part;
}

}  // namespace

std::vector<BundlePart> PlanParts(const BundleOptions& options) {
  std::vector<BundlePart> parts;
  parts.push_back(ProbePart(options));
  parts.push_back(RowsPart("checks", {"C1", "C2", "C3", "C4", "C5", "C6"}, "lmdbio-device-checks",
                           170, options));
  parts.push_back(PythonPart(options));
  parts.push_back(
      RowsPart("figures", {"D1", "D2", "D7", "D8", "D11"}, "lmdbio-device-figures", 110, options));
  parts.push_back(RowsPart("figures of several ranks", {"D3", "D4", "D5", "D6", "D9", "D10", "D13"},
                           "lmdbio-device-jobs", 150, options));
  for (BundlePart* const part : {&parts[3], &parts[4]}) {
    part->words.insert(part->words.end(), {"--python", options.python});
    // Without a speed the smallest arrays are enough.
    if (options.is_quick) part->words.insert(part->words.end(), {"--size-max", "64K"});
  }
  for (const char* const tool : {"memcheck", "racecheck"}) {
    parts.push_back(SanitizerPart(options, tool));
  }
  return parts;
}

std::vector<std::string> GpuCommand(const BundleOptions& options) {
  Words words = CommonWords(options.programs / "lmdbio-device-checks", options);
  words.insert(words.end(), {"--gpu", "--json", "-"});
  return words;
}

}  // namespace lmdbio::bundle
