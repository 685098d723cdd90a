// lmdbio-device-checks: the device path of lmdbio on the driver and the GPU of this machine.
//
// Needs a driver and a GPU, and nothing else of the project: no MPI, no test framework.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/device/device_error.h"
#include "lmdbio/file/output/growing_file.h"
#include "tests/gpu/check_process.h"
#include "tests/gpu/device_check.h"
#include "tools/cli/cli.h"

namespace {

using lmdbio::ErrorCode;
using lmdbio::Fail;
using lmdbio::Status;
using lmdbio::test::CheckOutcome;
using lmdbio::test::CheckScene;
using lmdbio::test::CheckState;
using lmdbio::test::DeviceCheck;
using lmdbio::test::DeviceChecks;
using lmdbio::tools::Invocation;
using lmdbio::tools::Misuse;
using lmdbio::tools::Whole;
using nlohmann::ordered_json;
namespace po = lmdbio::tools::po;

constexpr int kExitWithoutGpu = 77;
constexpr const char* kStandardOutput = "-";
constexpr const char* kSummary = "Checks the device path of lmdbio on this machine's GPU.";
constexpr const char* kDetails =
    "C1, C2: kernels give the bits of the host. C3: ranks that share the GPU reduce tensors in "
    "each way. C4: ranks are killed and stopped at random moments. C5: the pointer cache when "
    "addresses are used again. C6: rows of batches.\n"
    "Each check has a process and a time limit of its own. Exit code: 0 if all have passed or were "
    "left out and one has passed; 77 without a driver or a GPU; otherwise 1.";

int g_exit_code = 0;

void Describe(po::options_description_easy_init options) {
  options("device", po::value<Whole>()->default_value({0})->value_name("N"),
          "the GPU, among those that this process sees")  //
      ("only", po::value<std::string>()->default_value("all")->value_name("LIST"),
       "checks, as C1,C3; or all")  //
      ("seed", po::value<Whole>()->value_name("N"),
       "of all random values; without it a new one, which is told")  //
      ("quick", "less of everything")                                //
      ("seconds-max", po::value<double>()->default_value(300)->value_name("SECONDS"),
       "the time for all; later checks are left out")  //
      ("list", "name the checks, and do nothing")      //
      ("gpu", "name the GPU, and do nothing")          //
      ("json", po::value<std::string>()->default_value("")->value_name("FILE"),
       "write a line of JSON for each check to FILE; -: to standard output, without the table");
}

DeviceChecks AllChecks() {
  DeviceChecks all;
  for (const auto make :
       {&lmdbio::test::KernelChecks, &lmdbio::test::SyncChecks, &lmdbio::test::EndChecks,
        &lmdbio::test::PointerChecks, &lmdbio::test::FeedChecks}) {
    for (DeviceCheck& check : make()) all.push_back(std::move(check));
  }
  return all;
}

DeviceChecks ChosenChecks(const std::string& only) {
  DeviceChecks all = AllChecks();
  if (only == "all") return all;
  std::set<std::string> chosen;
  std::istringstream in(only);
  for (std::string word; std::getline(in, word, ',');) {
    const auto has_id = [&](const DeviceCheck& check) { return check.id == word; };
    if (std::none_of(all.begin(), all.end(), has_id)) {
      throw Misuse(fmt::format("--only: there is no check '{}'", word));
    }
    chosen.insert(word);
  }
  if (chosen.empty()) throw Misuse("--only needs at least one check");
  std::erase_if(all, [&](const DeviceCheck& check) { return !chosen.contains(check.id); });
  return all;
}

CheckScene SceneOf(const Invocation& invocation) {
  const uint64_t ordinal = invocation.whole("device");
  if (ordinal > 1024) throw Misuse("--device is at most 1024");
  return {.ordinal = static_cast<int>(ordinal),
          .seed = invocation.has("seed") ? invocation.whole("seed") : std::random_device()(),
          .is_quick = invocation.has("quick")};
}

// "passed", "failed", "left out".
const char* NameOf(CheckState state) {
  if (state == CheckState::kPassed) return "passed";
  return state == CheckState::kFailed ? "failed" : "left out";
}

// Rows, written as soon as they are known.
class Report {
 public:
  // Errors: as OpenGrowingFile
  static lmdbio::Result<Report> Open(const std::string& path) {
    Report report(path);
    if (path.empty() || path == kStandardOutput) return report;
    LMDBIO_TRY(lmdbio::UniqueFd file, lmdbio::file::OpenGrowingFile(path));
    report.file_.reset(::fdopen(file.get(), "w"));
    if (report.file_ == nullptr) return Fail(lmdbio::ErrnoError(errno, path, "open"));
    file.release();  // fclose closes it
    return report;
  }

  Status Write(const ordered_json& object, const std::string& text) {
    std::string line = object.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    const bool is_json_only = path_ == kStandardOutput;
    LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(is_json_only ? line : text));
    std::fflush(stdout);  // a row is told even if the program is killed later
    if (file_ == nullptr) return {};
    const bool is_written = std::fwrite(line.data(), 1, line.size(), file_.get()) == line.size() &&
                            std::fflush(file_.get()) == 0;
    return is_written ? Status() : Fail(lmdbio::ErrnoError(errno, path_, "write"));
  }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  explicit Report(std::string path) : path_(std::move(path)) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

// The GPU as a child sees it, because this process must not open the driver.
CheckOutcome FindGpu(const CheckScene& scene) {
  return lmdbio::test::RunInProcess(
      [&]() -> CheckOutcome {
        const auto driver = lmdbio::device::SystemDriver();
        if (!driver && driver.error().code() != ErrorCode::kNotFound) {
          return lmdbio::test::Failed(driver.error().message());
        }
        if (!driver) return lmdbio::test::LeftOut(driver.error().message());
        const auto opened = lmdbio::device::Device::Open(scene.ordinal, **driver);
        if (!opened && opened.error().code() != ErrorCode::kNotFound) {
          return lmdbio::test::Failed(opened.error().message());
        }
        if (!opened) return lmdbio::test::LeftOut(opened.error().message());
        const lmdbio::device::DeviceFacts& facts = (*opened)->facts();
        return lmdbio::test::Passed(fmt::format("{}, driver for CUDA {}, compute capability {}.{}",
                                                facts.name,
                                                lmdbio::device::VersionText(facts.driver_version),
                                                facts.compute_major, facts.compute_minor));
      },
      60);
}

std::string TextOf(const DeviceCheck& check, const CheckOutcome& outcome, double seconds) {
  return fmt::format("  {}  {:<52} {:<8} {:5.1f} s  {}\n", check.id, check.name,
                     NameOf(outcome.state), seconds, outcome.note);
}

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

Status RunChecks(const DeviceChecks& checks, const CheckScene& scene, double seconds_max,
                 Report& report) {
  const auto begin = Clock::now();
  bool has_passed = false;
  bool has_failed = false;
  for (const DeviceCheck& check : checks) {
    const double left = seconds_max - SecondsSince(begin);
    CheckOutcome outcome = lmdbio::test::LeftOut("no time was left");
    const auto check_begin = Clock::now();
    if (left > 0) {
      outcome = lmdbio::test::RunInProcess([&] { return check.run(scene); },
                                           std::min(check.seconds_max, left));
    }
    if (outcome.state == CheckState::kFailed) outcome.note += fmt::format(" (seed {})", scene.seed);
    has_passed = has_passed || outcome.state == CheckState::kPassed;
    has_failed = has_failed || outcome.state == CheckState::kFailed;
    LMDBIO_TRY_VOID(report.Write({{"id", check.id},
                                  {"name", check.name},
                                  {"state", NameOf(outcome.state)},
                                  {"note", outcome.note}},
                                 TextOf(check, outcome, SecondsSince(check_begin))));
    if (lmdbio::tools::StopRequested()) return Fail(ErrorCode::kInternal, "interrupted");
  }
  g_exit_code = has_passed && !has_failed ? 0 : 1;
  return {};
}

Status Run(const Invocation& invocation) {
  const DeviceChecks checks = ChosenChecks(invocation.option<std::string>("only"));
  const CheckScene scene = SceneOf(invocation);
  const auto seconds_max = invocation.option<double>("seconds-max");
  if (!(seconds_max > 0 && seconds_max <= 86400)) throw Misuse("--seconds-max takes 0 to 86400");
  if (invocation.has("list")) {
    for (const DeviceCheck& check : checks) {
      LMDBIO_TRY_VOID(lmdbio::tools::WriteOutput(fmt::format("{}  {}\n", check.id, check.name)));
    }
    return {};
  }
  lmdbio::tools::CatchStopSignals();
  const CheckOutcome gpu = FindGpu(scene);
  if (gpu.state == CheckState::kFailed) return Fail(ErrorCode::kInternal, gpu.note);
  if (gpu.state == CheckState::kLeftOut) {
    invocation.Warn(gpu.note);
    g_exit_code = kExitWithoutGpu;
    return {};
  }
  LMDBIO_TRY(Report report, Report::Open(invocation.option<std::string>("json")));
  LMDBIO_TRY_VOID(report.Write({{"gpu", gpu.note}, {"seed", scene.seed}},
                               fmt::format("# {}\n# seed {}\n", gpu.note, scene.seed)));
  return invocation.has("gpu") ? Status() : RunChecks(checks, scene, seconds_max, report);
}

}  // namespace

int main(int argc, char** argv) {
  const std::array commands = {lmdbio::tools::Command{"", "", kSummary, &Describe, &Run,
                                                      lmdbio::tools::Output::kText, kDetails}};
  const int code = lmdbio::tools::RunTool("lmdbio-device-checks", kSummary, commands, argc, argv);
  return code != 0 ? code : g_exit_code;
}
