#include "bench/machine/machine_facts.h"

#include <sys/utsname.h>

#include <fstream>
#include <string>
#include <thread>

#include "generated/commit.h"

namespace lmdbio::tools {
namespace {

// The line "model name" exists on x86 processors; on others the name stays unknown.
std::string CpuName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? line : line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

nlohmann::ordered_json DescribeMachine() {
  utsname system = {};
  ::uname(&system);
  nlohmann::ordered_json machine;
  machine["processor"] = CpuName();
  machine["cores"] = std::thread::hardware_concurrency();
  machine["kernel"] = std::string(system.release);
  machine["commit"] = LMDBIO_COMMIT;
  return machine;
}

}  // namespace lmdbio::tools
