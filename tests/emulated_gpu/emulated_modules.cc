// The functions about machine code and its launches.

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lmdbio/device/driver_table.h"
#include "tests/emulated_gpu/emulated_calls.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/emulated_gpu/emulated_kernels.h"

namespace lmdbio::test {
namespace {

using namespace device;  // the declarations of the driver

// The first bytes of the fat binaries of nvcc.
constexpr uint32_t kFatBinaryMagic = 0xBA55ED50;
constexpr uint32_t kThreadsOfBlockMax = 1024;

// The stand-in has kernels of its own, whatever the image holds.
bool IsImage(const void* image) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  return magic == kFatBinaryMagic || std::memcmp(image, kEmulatedImage, sizeof(magic)) == 0;
}

DriverCode ModuleLoadData(ModuleHandle* module, const void* image) {
  return ServeContext("cuModuleLoadData", [&](EmulatedMachine& machine, int ordinal) -> DriverCode {
    if (!IsImage(image)) return code::kInvalidImage;
    const uint64_t id = machine.TakeId();
    machine.modules.loaded[id] = {.ordinal = ordinal, .functions = {}};
    *module = std::bit_cast<ModuleHandle>(id);
    return code::kSuccess;
  });
}

DriverCode ModuleUnload(ModuleHandle module) {
  return ServeContext("cuModuleUnload", [&](EmulatedMachine& machine, int) {
    const bool is_there = machine.modules.loaded.erase(std::bit_cast<uint64_t>(module)) == 1;
    return is_there ? code::kSuccess : code::kInvalidHandle;
  });
}

DriverCode ModuleGetFunction(FunctionHandle* function, ModuleHandle module, const char* name) {
  return ServeContext("cuModuleGetFunction", [&](EmulatedMachine& machine, int) -> DriverCode {
    const auto found = machine.modules.loaded.find(std::bit_cast<uint64_t>(module));
    if (found == machine.modules.loaded.end()) return code::kInvalidHandle;
    const EmulatedKernel* const kernel = FindEmulatedKernel(name);
    if (kernel == nullptr) return code::kNoSuchName;
    const uint64_t id = machine.TakeId();
    found->second.functions[id] = {.kernel = kernel};
    *function = std::bit_cast<FunctionHandle>(id);
    return code::kSuccess;
  });
}

// Calls about a function of the current device, which `body` gets.
template <typename Body>
DriverCode OnFunction(EmulatedMachine& machine, int ordinal, FunctionHandle function,
                      const Body& body) {
  for (auto& [id, module] : machine.modules.loaded) {
    const auto found = module.functions.find(std::bit_cast<uint64_t>(function));
    if (found == module.functions.end() || module.ordinal != ordinal) continue;
    return body(found->second);
  }
  return code::kInvalidHandle;
}

DriverCode FuncLoad(FunctionHandle function) {
  return ServeContext("cuFuncLoad", [&](EmulatedMachine& machine, int ordinal) {
    return OnFunction(machine, ordinal, function, [](EmulatedFunction& found) {
      found.is_loaded = true;
      return code::kSuccess;
    });
  });
}

DriverCode LaunchKernel(FunctionHandle function, unsigned blocks, unsigned blocks_y,
                        unsigned blocks_z, unsigned threads, unsigned threads_y, unsigned threads_z,
                        unsigned shared_bytes, StreamHandle stream, void** parameters,
                        void** extra) {
  return ServeStream("cuLaunchKernel", stream, [&](EmulatedMachine& machine, uint64_t id) {
    const int ordinal = machine.queues.OrdinalOf(id);
    return OnFunction(machine, ordinal, function, [&](EmulatedFunction& found) -> DriverCode {
      if (blocks == 0 || threads == 0 || threads > kThreadsOfBlockMax) return code::kInvalidValue;
      if (blocks_y * blocks_z * threads_y * threads_z != 1) return code::kInvalidValue;
      if (shared_bytes != 0 || extra != nullptr) return code::kInvalidValue;
      if (!found.is_loaded) ++machine.modules.lazy_loads;
      found.is_loaded = true;
      const EmulatedKernel* const kernel = found.kernel;
      const auto* const first = static_cast<const std::byte*>(parameters[0]);
      const std::vector<std::byte> parameter(first, first + kernel->parameter_bytes);
      const EmulatedLaunch launch = {
          .ordinal = ordinal, .blocks = blocks, .threads = threads, .seed = machine.queues.Draw()};
      machine.queues.Enqueue(
          id, {.may_run = nullptr, .run = [&machine, ordinal, kernel, parameter, launch] {
                 if (kernel->run(machine.tables, parameter.data(), launch)) return;
                 machine.Lose(ordinal, code::kIllegalAddress);
               }});
      return code::kSuccess;
    });
  });
}

}  // namespace

void AddModuleFunctions(device::DriverTable& table) {
  table.ModuleLoadData = ModuleLoadData;
  table.ModuleUnload = ModuleUnload;
  table.ModuleGetFunction = ModuleGetFunction;
  table.FuncLoad = FuncLoad;
  table.LaunchKernel = LaunchKernel;
}

}  // namespace lmdbio::test
