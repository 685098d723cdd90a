#include "bench/on_device/figure_program.h"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <string>

#include <fmt/format.h>

#include "bench/device/machine_state.h"
#include "bench/machine/machine_facts.h"
#include "bench/on_device/figure_report.h"
#include "lmdbio/device/device_error.h"
#include "tools/cli/sizes.h"

namespace lmdbio::figures {
namespace {

using nlohmann::ordered_json;
using tools::Invocation;
using tools::Misuse;
using tools::Whole;
namespace po = tools::po;

// RunTool takes functions without data.
const FigureProgram* g_program = nullptr;
std::string g_command_line;
int g_exit_code = 0;

double Seconds(const Invocation& invocation, const char* name, double least) {
  const double value = invocation.option<double>(name);
  // The negated condition also rejects a value that is not a number.
  if (!(value >= least && value <= 86400)) {
    throw Misuse(fmt::format("--{} takes {} to 86400", name, least));
  }
  return value;
}

FigureSettings OptionsOf(const Invocation& invocation) {
  FigureSettings options;
  const uint64_t ordinal = invocation.whole("device");
  const uint64_t sample_count = invocation.whole("samples");
  if (ordinal > 1024) throw Misuse("--device is at most 1024");
  if (sample_count == 0 || sample_count > 10000) throw Misuse("--samples takes 1 to 10000");
  options.ordinal = static_cast<int>(ordinal);
  options.sample_count = static_cast<int>(sample_count);
  options.sample_seconds = Seconds(invocation, "sample-seconds", 0);
  options.size_bytes_max = tools::ParseSize(invocation.option<std::string>("size-max"), "size-max");
  if (options.size_bytes_max < 4096) throw Misuse("--size-max is at least 4096");
  options.is_quick = invocation.has("quick");
  return options;
}

void Describe(po::options_description_easy_init options) {
  options("device", po::value<Whole>()->default_value({0})->value_name("N"),
          "the GPU, among those that this process sees")  //
      ("only", po::value<std::string>()->default_value("all")->value_name("LIST"),
       "figures, as D1,D2; or all")  //
      ("samples,i", po::value<Whole>()->default_value({20})->value_name("N"),
       "samples of a row")  //
      ("sample-seconds", po::value<double>()->default_value(0.002, "0.002")->value_name("SECONDS"),
       "shorter work is repeated in a sample")  //
      ("size-max",
       po::value<std::string>()->default_value(g_program->size_max)->value_name("BYTES"),
       "the largest array")    //
      ("quick", "fewer rows")  //
      ("seconds-max", po::value<double>()->default_value(240)->value_name("SECONDS"),
       "the time for all; later rows are left out")  //
      ("json", po::value<std::string>()->default_value("")->value_name("FILE"),
       "write a line of JSON for each row to FILE; -: to standard output, without the table");
  if (g_program->describe != nullptr) g_program->describe(options);
}

// The parts that --only names.
std::vector<FigurePart> ChosenParts(std::vector<FigurePart> all, const std::string& only) {
  if (only == "all") return all;
  std::set<std::string> chosen;
  std::istringstream in(only);
  for (std::string word; std::getline(in, word, ',');) {
    const bool is_known = std::any_of(all.begin(), all.end(),
                                      [&](const FigurePart& part) { return part.id == word; });
    if (!is_known) throw Misuse(fmt::format("--only: this program has no figure '{}'", word));
    chosen.insert(word);
  }
  if (chosen.empty()) throw Misuse("--only needs at least one figure");
  std::erase_if(all, [&](const FigurePart& part) { return !chosen.contains(part.id); });
  return all;
}

ordered_json FactsOf(const device::Device& device, const FigureSettings& options) {
  const device::DeviceFacts& facts = device.facts();
  ordered_json machine = tools::DescribeMachine();
  machine.update(probe::DescribeDeviceState());
  machine["program"] = g_program->name;
  machine["command_line"] = g_command_line;
  machine["samples"] = options.sample_count;
  const ordered_json gpu = {
      {"gpu", facts.name},
      {"uuid", facts.uuid},
      {"driver_for_cuda", device::VersionText(facts.driver_version)},
      {"compute_capability", fmt::format("{}.{}", facts.compute_major, facts.compute_minor)},
      {"multiprocessors", facts.multiprocessors},
      {"memory_bytes", facts.memory_bytes}};
  return {{"machine", machine}, {"device", gpu}};
}

// Errors: kNotFound  no driver, no GPU, or none of this ordinal
Status OpenDevice(FigureScene& scene) {
  LMDBIO_TRY(scene.driver, device::SystemDriver());
  LMDBIO_TRY(scene.device, device::Device::Open(scene.options.ordinal, *scene.driver));
  return {};
}

Status Run(const Invocation& invocation) {
  FigureScene scene = {.options = OptionsOf(invocation), .invocation = &invocation};
  scene.seconds_end = SecondsNow() + Seconds(invocation, "seconds-max", 0.01);
  const std::vector<FigurePart> parts = ChosenParts(g_program->plan(scene.options, invocation),
                                                    invocation.option<std::string>("only"));
  if (Status status = OpenDevice(scene); !status) {
    if (status.error().code() != ErrorCode::kNotFound) return status;
    invocation.Warn(status.error().message());
    g_exit_code = kExitWithoutGpu;
    return {};
  }
  LMDBIO_TRY(FigureReport report, FigureReport::Open(invocation.option<std::string>("json")));
  LMDBIO_TRY_VOID(report.WriteFacts(FactsOf(*scene.device, scene.options)));
  for (const FigurePart& part : parts) {
    LMDBIO_TRY_VOID(FigureRun(scene, part, report).RunPart());
  }
  g_exit_code = ExitCodeOf(report.rows());
  return {};
}

}  // namespace

int RunFigures(const FigureProgram& program, int argc, char** argv) {
  g_program = &program;
  for (int i = 0; i < argc; ++i) g_command_line += (i > 0 ? " " : "") + std::string(argv[i]);
  const std::array commands = {tools::Command{"", "", program.summary, &Describe, &Run,
                                              tools::Output::kText, program.details}};
  const int code = tools::RunTool(program.name, program.summary, commands, argc, argv);
  return code != 0 ? code : g_exit_code;
}

}  // namespace lmdbio::figures
