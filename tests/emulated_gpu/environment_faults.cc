// Faults that the environment sets, for programs that a test does not share a process with.

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>

#include "tests/emulated_gpu/emulated_calls.h"

namespace lmdbio::test {
namespace {

DriverCode FaultOf(const std::string& word) {
  if (word == "hang") return kHangs;
  if (word == "kill") return kKills;
  return word == "skip" ? kSkips : std::atoi(word.c_str());
}

// "NAME:NTH:CODE" or "NAME:hide".
void AddFault(EmulatedMachine& machine, const std::string& text) {
  std::istringstream parts(text);
  std::string name;
  std::string nth;
  std::string what;
  std::getline(parts, name, ':');
  std::getline(parts, nth, ':');
  std::getline(parts, what);
  if (nth == "hide") {
    machine.faults.Hide(name.c_str());
    return;
  }
  machine.faults.Add(name.c_str(), std::strtoull(nth.c_str(), nullptr, 10), FaultOf(what));
}

}  // namespace

void AddFaultsOfEnvironment(EmulatedMachine& machine) {
  const char* const text = std::getenv("LMDBIO_EMULATED_GPU_FAULTS");
  if (text == nullptr) return;
  std::istringstream faults(text);
  for (std::string fault; std::getline(faults, fault, ',');) AddFault(machine, fault);
}

void EndCall(DriverCode fault) {
  if (fault == kKills) std::raise(SIGKILL);
  while (true) ::pause();
}

}  // namespace lmdbio::test
