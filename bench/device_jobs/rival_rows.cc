#include "bench/device_jobs/rival_rows.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lmdbio::figures {
namespace {

namespace po = tools::po;

constexpr double kRivalSecondsMax = 60;
constexpr double kSecondsToEnd = 5;
constexpr int kCallsOfSample = 5;

std::string BesideProgram(const char* name) {
  std::array<char, PATH_MAX> path = {};
  const ssize_t length = ::readlink("/proc/self/exe", path.data(), path.size());
  std::string folder(path.data(), length > 0 ? static_cast<size_t>(length) : 0);
  folder.resize(folder.rfind('/') + 1);
  return folder + name;
}

Result<std::vector<double>> RivalSamples(FigureRun& run, JobScene& scene,
                                         const RivalPrograms& programs,
                                         std::vector<std::string> words,
                                         const std::string& measure) {
  if (::access(programs.script.c_str(), R_OK) != 0) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{} is not there: name it with --rivals", programs.script));
  }
  std::vector<std::string> command = {programs.python, "-B", programs.script};
  command.insert(command.end(), words.begin(), words.end());
  const double seconds = std::min(kRivalSecondsMax, run.SecondsLeft());
  // The same for all rows, so that they are of one run.
  const std::array more = {std::string("--seconds"), fmt::format("{:.0f}", kRivalSecondsMax),
                           std::string("--device"),  std::to_string(run.options().ordinal),
                           std::string("--repeat"),  std::to_string(run.options().sample_count)};
  command.insert(command.end(), more.begin(), more.end());
  auto samples = scene.runs.SamplesOfProgram(command, measure, seconds + kSecondsToEnd);
  if (samples) return samples;
  return Fail(ErrorCode::kUnsupported, samples.error().message());
}

}  // namespace

void DescribeRivals(po::options_description_easy_init options) {
  options("rivals", po::value<std::string>()->default_value("")->value_name("SCRIPT"),
          "rivals.py; by default the one beside the program")  //
      ("python", po::value<std::string>()->default_value("python3")->value_name("PROGRAM"),
       "the Python that has PyTorch");
}

RivalPrograms RivalProgramsOf(const tools::Invocation& invocation) {
  RivalPrograms programs = {invocation.option<std::string>("python"),
                            invocation.option<std::string>("rivals")};
  if (programs.script.empty()) programs.script = BesideProgram("rivals.py");
  return programs;
}

Result<std::vector<double>> RivalTimes(FigureRun& run, JobScene& scene,
                                       const RivalPrograms& programs, int rank_count,
                                       const std::string& rival, uint64_t size_bytes) {
  std::vector<uint64_t> sizes = RivalSizes(run.options());
  for (uint64_t& size : sizes) size = run.options().AtMost(size);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return RivalSamples(
      run, scene, programs,
      {"--ranks", std::to_string(rank_count), "--calls", std::to_string(kCallsOfSample), "--sizes",
       fmt::format("{}", fmt::join(sizes, ","))},
      fmt::format("{}, {}", rival, SizeWords(run.options().AtMost(size_bytes))));
}

Result<std::vector<double>> HookTimes(FigureRun& run, JobScene& scene,
                                      const RivalPrograms& programs,
                                      const std::vector<uint64_t>& counts) {
  return RivalSamples(run, scene, programs, {"--hooks", fmt::format("{}", fmt::join(counts, ","))},
                      kHooksRival);
}

}  // namespace lmdbio::figures
