#include "bench/device/machine_state.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "bench/device/supervise.h"

namespace lmdbio::probe {
namespace {

using nlohmann::ordered_json;

constexpr double kToolSecondsMax = 10;
// One word each in the answer, so that a name that this nvidia-smi lacks spoils the others: it then
// says so in place of all.
constexpr const char* kQueried =
    "index,name,driver_version,pstate,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,"
    "power.limit,temperature.gpu,persistence_mode,compute_mode,ecc.mode.current,mig.mode.current,"
    "pcie.link.gen.current,pcie.link.width.current";

std::string FirstLineOf(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string EnvironmentText(const char* name) {
  const char* const text = std::getenv(name);
  return text != nullptr ? text : "";
}

// The lines of nvidia-smi, one for each GPU, or why there are none.
ordered_json AskTool() {
  Result<ChildProcess> tool = ChildProcess::Start(
      {"nvidia-smi", std::string("--query-gpu=") + kQueried, "--format=csv,noheader"}, {},
      STDOUT_FILENO);
  if (!tool) return {{"nvidia_smi", tool.error().message()}};
  if (Supervise(std::span(&*tool, 1), nullptr, kToolSecondsMax) != SupervisedEnd::kEnded) {
    return {{"nvidia_smi", "it did not end in time"}};
  }
  std::istringstream lines(tool->text());
  ordered_json out = {{"nvidia_smi_fields", kQueried}};
  int number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    out["nvidia_smi_" + std::to_string(number)] = line;
  }
  return out;
}

}  // namespace

ordered_json DescribeDeviceState() {
  ordered_json state;
  const std::string module = FirstLineOf("/proc/driver/nvidia/version");
  state["driver_module"] = module.empty() ? "unknown" : module;
  rlimit limit = {};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  state["locked_memory_limit"] =
      limit.rlim_cur == RLIM_INFINITY ? "none" : std::to_string(limit.rlim_cur) + " bytes";
  cpu_set_t usable;
  if (::sched_getaffinity(0, sizeof(usable), &usable) == 0) {
    state["usable_cores"] = CPU_COUNT(&usable);
  }
  const std::string load = FirstLineOf("/proc/loadavg");
  if (!load.empty()) state["load"] = load;
  for (const char* const name : {"CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY"}) {
    if (std::string text = EnvironmentText(name); !text.empty()) state[name] = std::move(text);
  }
  state["direct_storage_module"] = ::access("/proc/driver/nvidia-fs", F_OK) == 0;
  state.update(AskTool());
  return state;
}

}  // namespace lmdbio::probe
