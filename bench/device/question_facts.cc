// Q0: the device itself, as its driver tells.

#include <dlfcn.h>

#include <array>
#include <string>
#include <utility>

#include "bench/device/probe_trials.h"

namespace lmdbio::probe {
namespace {

using device::DeviceAttribute;

// Numbers of cuda.h that only this report needs.
constexpr std::array<std::pair<const char*, int>, 9> kAttributes = {{
    {"clock_khz", 13},
    {"memory_clock_khz", 36},
    {"memory_bus_bits", 37},
    {"l2_cache_bytes", 38},
    {"copy_engines", 40},
    {"ecc", 32},
    {"compute_mode", 20},
    {"integrated", 18},
    {"pci_bus", 33},
}};

std::string VersionWords(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

Status PlayFacts(const ProbePart& part) {
  const device::DeviceFacts& facts = part.device().facts();
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  LMDBIO_TRY_VOID(part.context().Run("cuMemGetInfo", [&](const device::DriverTable& driver) {
    return driver.MemGetInfo(&free_bytes, &total_bytes);
  }));
  nlohmann::ordered_json out = {
      {"ordinal", facts.ordinal},
      {"name", facts.name},
      {"uuid", facts.uuid},
      {"cuda_of_driver", VersionWords(facts.driver_version)},
      {"compute_capability",
       std::to_string(facts.compute_major) + "." + std::to_string(facts.compute_minor)},
      {"multiprocessors", facts.multiprocessors},
      {"memory_bytes", facts.memory_bytes},
      {"free_bytes", free_bytes},
      {"can_pin", facts.can_pin},
      {"can_share_memory", facts.can_share_memory},
      {"can_share_events", facts.can_share_events},
      {"can_await_marks", facts.can_await_marks},
      {"has_batch_copies", part.driver().MemcpyBatchAsync != nullptr},
  };
  device::DeviceNumber number = 0;
  part.driver().DeviceGet(&number, facts.ordinal);
  for (const auto& [name, attribute] : kAttributes) {
    int value = 0;
    const auto code =
        part.driver().DeviceGetAttribute(&value, static_cast<DeviceAttribute>(attribute), number);
    if (code == device::driver_code::kSuccess) out[name] = value;
  }
  void* const direct_storage = ::dlopen("libcufile.so.0", RTLD_LAZY | RTLD_LOCAL);
  out["direct_storage_library"] = direct_storage != nullptr;
  part.SayFacts(out);
  return {};
}

}  // namespace

void AddFacts(std::vector<Trial>& trials) {
  trials.push_back(
      {.question = "Q0", .rows = {}, .seconds_max = 60, .play = &PlayFacts, .stays = true});
}

}  // namespace lmdbio::probe
