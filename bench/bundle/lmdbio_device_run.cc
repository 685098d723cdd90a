// lmdbio-device-run: all checks and figures of a GPU, one program after the other, and one table.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "bench/bundle/bundle_parts.h"
#include "bench/bundle/bundle_report.h"
#include "bench/bundle/orphans.h"
#include "bench/device/machine_state.h"
#include "bench/device/probe_part.h"
#include "bench/device/probe_report.h"
#include "bench/device/supervise.h"
#include "bench/machine/machine_facts.h"
#include "bench/scratch_folder.h"
#include "tools/cli/cli.h"

namespace {

namespace fs = std::filesystem;
using lmdbio::ErrorCode;
using lmdbio::Fail;
using lmdbio::Result;
using lmdbio::Status;
using lmdbio::bench::ScratchFolder;
using lmdbio::bundle::BundleOptions;
using lmdbio::bundle::BundleOutcome;
using lmdbio::bundle::BundlePart;
using lmdbio::bundle::PartOutcome;
using lmdbio::bundle::RowOf;
using lmdbio::probe::ChildProcess;
using lmdbio::probe::SecondsNow;
using lmdbio::tools::Invocation;
using lmdbio::tools::Misuse;
using lmdbio::tools::Whole;
namespace po = lmdbio::tools::po;

constexpr int kExitWithoutGpu = 77;
constexpr double kGpuSecondsMax = 60;
constexpr double kLeastSeconds = 5;  // a part with less is left out
constexpr double kGraceSeconds = 4;  // for a part to tell rows without time
constexpr const char* kSummary = "Runs all checks and figures of lmdbio on this machine's GPU.";
constexpr const char* kDetails =
    "The probe (Q1 to Q9), checks (C1 to C8), and figures with their bars (D1 to D13). Each part "
    "has a limit of time; one that crashes or hangs ends alone. Exit code: 0 if all rows have "
    "held, or were left out with a reason; 77 without a driver or a GPU; otherwise 1.";

int g_exit_code = 0;

void Describe(po::options_description_easy_init options) {
  options("device", po::value<Whole>()->default_value({0})->value_name("N"),
          "the GPU, among those that this process sees")  //
      ("json", po::value<std::string>()->default_value("")->value_name("FILE"),
       "also write the report to FILE, as JSON")  //
      ("only", po::value<std::string>()->default_value("")->value_name("PART"),
       "one part, by its name")  //
      ("python", po::value<std::string>()->default_value("python3")->value_name("PROGRAM"),
       "for the parts that need PyTorch")                              //
      ("quick", "less of everything: tries the bundle without a GPU")  //
      ("seconds-max", po::value<double>()->default_value(480)->value_name("SECONDS"),
       "the time for all; later parts are left out");
}

BundleOptions OptionsOf(const Invocation& invocation, const ScratchFolder& scratch) {
  const uint64_t ordinal = invocation.whole("device");
  if (ordinal > 1024) throw Misuse("--device is at most 1024");
  std::error_code ignored;
  return {.programs = fs::read_symlink("/proc/self/exe", ignored).parent_path(),
          .ordinal = static_cast<int>(ordinal),
          .is_quick = invocation.has("quick"),
          .python = invocation.option<std::string>("python"),
          .probe_report = (scratch.path() / "probe.json").string()};
}

std::string TextOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct PartEnd {
  std::string words;
  std::string output;
  int exit_code = -1;  // -1: it has not ended by itself
};

// Errors: as ChildProcess::Start
Result<PartEnd> RunCommand(const std::vector<std::string>& words, double seconds_max) {
  PartEnd end;
  {
    LMDBIO_TRY(ChildProcess process, ChildProcess::Start(words, {}, STDOUT_FILENO));
    const auto supervised = lmdbio::probe::Supervise(std::span(&process, 1), nullptr, seconds_max);
    end.output = process.text();
    end.words = lmdbio::probe::EndWords(process.wait_status());
    const auto status = process.wait_status();
    if (supervised == lmdbio::probe::SupervisedEnd::kLate) {
      end.words = fmt::format("not done within {:.0f} s", seconds_max);
    } else if (status && WIFEXITED(*status)) {
      end.exit_code = WEXITSTATUS(*status);
    }
  }
  lmdbio::bundle::EndOrphans();
  return end;
}

class BundleRun {
 public:
  BundleRun(const BundleOptions& options, double seconds_max)
      : options_(options), begin_(SecondsNow()), end_(begin_ + seconds_max) {}

  BundleOutcome Run(const std::string& only) {
    BundleOutcome outcome;
    outcome.machine = lmdbio::tools::DescribeMachine();
    outcome.machine.update(lmdbio::probe::DescribeDeviceState());
    for (const BundlePart& part : lmdbio::bundle::PlanParts(options_)) {
      if (!only.empty() && part.name != only) continue;
      outcome.parts.push_back(RunPart(part));
      if (lmdbio::tools::StopRequested()) break;
    }
    outcome.seconds = SecondsNow() - begin_;
    return outcome;
  }

 private:
  static PartOutcome LeftOut(const BundlePart& part, const std::string& why) {
    PartOutcome outcome = {.name = part.name, .end = "left out", .seconds = 0, .told = {}};
    for (const std::string& id : part.ids) {
      outcome.told.rows.push_back(RowOf(id, part.name, "left out", why));
    }
    return outcome;
  }

  PartOutcome RunPart(const BundlePart& part) const {
    const double begin = SecondsNow();
    const double seconds = std::min(part.seconds_max, end_ - begin) - kGraceSeconds;
    if (!part.obstacle.empty()) return LeftOut(part, part.obstacle);
    if (seconds < kLeastSeconds - kGraceSeconds) return LeftOut(part, "no time was left");
    std::fprintf(stderr, "lmdbio-device-run: %s, at most %.0f s\n", part.name.c_str(), seconds);
    std::vector<std::string> words = part.words;
    words.insert(words.end(), {part.seconds_option, fmt::format("{:.0f}", seconds)});
    const auto end = RunCommand(words, seconds + kGraceSeconds);
    if (!end) return LeftOut(part, end.error().message());
    PartOutcome outcome = {
        .name = part.name,
        .end = end->words,
        .seconds = SecondsNow() - begin,
        .told = part.is_probe ? lmdbio::bundle::RowsOfProbe(TextOfFile(options_.probe_report))
                              : lmdbio::bundle::RowsOfLines(end->output)};
    AddEnd(part, *end, outcome);
    return outcome;
  }

  // A part that ends otherwise than its rows say has failed.
  static void AddEnd(const BundlePart& part, const PartEnd& end, PartOutcome& outcome) {
    auto& rows = outcome.told.rows;
    const bool has_failed = std::any_of(rows.begin(), rows.end(), &lmdbio::bundle::HasFailed);
    const bool are_all_left_out =
        !rows.empty() && std::all_of(rows.begin(), rows.end(),
                                     [](const auto& row) { return row["state"] == "left out"; });
    const bool is_explained =
        end.exit_code == 0 || (end.exit_code == 1 && (has_failed || are_all_left_out));
    if (is_explained && !rows.empty()) return;
    const std::string why = rows.empty() && is_explained ? "it has told no row" : end.words;
    rows.push_back(RowOf(part.ids.front(), part.name + ", the part as a whole", "failed", why));
  }

  const BundleOptions options_;
  const double begin_;
  const double end_;
};

// Whether there is a GPU. Says why not.
// Errors: kInternal  the driver fails
Result<bool> FindGpu(const BundleOptions& options) {
  LMDBIO_TRY(const PartEnd end, RunCommand(lmdbio::bundle::GpuCommand(options), kGpuSecondsMax));
  if (end.exit_code == kExitWithoutGpu) return false;
  if (end.exit_code == 0) return true;
  return Fail(ErrorCode::kInternal, "the GPU cannot be used: " + end.words);
}

Status Run(const Invocation& invocation) {
  const auto seconds_max = invocation.option<double>("seconds-max");
  if (!(seconds_max > 0 && seconds_max <= 86400)) throw Misuse("--seconds-max takes 0 to 86400");
  LMDBIO_TRY(const ScratchFolder scratch,
             ScratchFolder::Make(fs::temp_directory_path(), "device-run"));
  const BundleOptions options = OptionsOf(invocation, scratch);
  const auto only = invocation.option<std::string>("only");
  const auto parts = lmdbio::bundle::PlanParts(options);
  if (!only.empty() && std::none_of(parts.begin(), parts.end(),
                                    [&](const BundlePart& part) { return part.name == only; })) {
    throw Misuse(fmt::format("--only: there is no part '{}'", only));
  }
  lmdbio::tools::CatchStopSignals();
  lmdbio::bundle::AdoptOrphans();
  LMDBIO_TRY(const bool has_gpu, FindGpu(options));
  if (!has_gpu) {
    g_exit_code = kExitWithoutGpu;
    return {};
  }
  const BundleOutcome outcome = BundleRun(options, seconds_max).Run(only);
  LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(lmdbio::bundle::TableOf(outcome)));
  const auto json = invocation.option<std::string>("json");
  if (!json.empty()) {
    LMDBIO_TRY_VOID(lmdbio::probe::WriteReportFile(json, lmdbio::bundle::JsonOf(outcome)));
  }
  if (lmdbio::tools::StopRequested()) return Fail(ErrorCode::kInternal, "interrupted");
  g_exit_code = outcome.HasHeld() ? 0 : 1;
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  const std::array commands = {lmdbio::tools::Command{"", "", kSummary, &Describe, &Run,
                                                      lmdbio::tools::Output::kText, kDetails}};
  const int code = lmdbio::tools::RunTool("lmdbio-device-run", kSummary, commands, argc, argv);
  return code != 0 ? code : g_exit_code;
}
