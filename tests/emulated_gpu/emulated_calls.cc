#include "tests/emulated_gpu/emulated_calls.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace lmdbio::test {
namespace {

uint64_t SeedOfEnvironment() {
  const char* const text = std::getenv("LMDBIO_EMULATED_GPU_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}

// Never destroyed, because destructors of the program may still call the driver.
std::unique_ptr<EmulatedMachine>& MachinePlace() {
  static auto& place = *[] {
    auto machine = std::make_unique<EmulatedMachine>(TheFile(), SeedOfEnvironment());
    AddFaultsOfEnvironment(*machine);
    return new std::unique_ptr<EmulatedMachine>(std::move(machine));
  }();
  return place;
}

}  // namespace

std::mutex machine_mutex;
thread_local EmulatedContext* current_context = nullptr;

DeviceFile& TheFile() {
  static DeviceFile& file = *new DeviceFile(std::getenv("LMDBIO_EMULATED_GPU"));
  return file;
}

EmulatedMachine& Machine() { return *MachinePlace(); }

void ReplaceMachine(uint64_t seed) {
  current_context = nullptr;
  MachinePlace() = std::make_unique<EmulatedMachine>(TheFile(), seed);
}

void DieIfForked() {
  static const pid_t kUser = ::getpid();
  if (::getpid() == kUser) return;
  std::fprintf(stderr, "the emulated driver was called in a child of fork()\n");
  std::abort();
}

}  // namespace lmdbio::test
