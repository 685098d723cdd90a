#include "lmdbio/kernels/device_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/kernels/kernel_list.h"
#include "lmdbio/kernels/kernel_plans.h"

namespace lmdbio::kernels {
namespace {

using device::Device;
using device::DeviceStream;
using device::DriverTable;
using device::FunctionHandle;
using device::ModuleHandle;
using device::PrimaryContext;

// A GPU and its numbers are little-endian, as pieces of words are taken.
static_assert(std::endian::native == std::endian::little);

// Some kernels that reduce have more than 32 registers, so that fewer than 2,048 threads fit. And a
// block that packs many small tensors takes longer than others for as many bytes.
constexpr uint32_t kTurns = 8;

constexpr std::string_view kNames[] = {
#define LMDBIO_NAME_OF(NAME, TABLE, BODY) #NAME,
    LMDBIO_FOR_EACH_KERNEL(LMDBIO_NAME_OF)
#undef LMDBIO_NAME_OF
};

// The error of an image that the driver refuses says what would do.
Error LoadError(const device::DeviceFacts& facts, const KernelImage& image, const Error& error) {
  if (error.code() != ErrorCode::kUnsupported) return error.Copy();
  return Error(
      ErrorCode::kUnsupported,
      fmt::format(
          "{}: the kernels are made by {} for {}; GPU {} ({}) has compute capability {}.{}, "
          "and its driver is for CUDA {}",
          error.message(), image.compiler, image.machines, facts.ordinal, facts.name,
          facts.compute_major, facts.compute_minor, device::VersionText(facts.driver_version)));
}

}  // namespace

// The machine code on the device.
class DeviceKernels::LoadedModule {
 public:
  explicit LoadedModule(std::shared_ptr<PrimaryContext> context) : context_(std::move(context)) {}
  ~LoadedModule() {
    if (handle_ == nullptr) return;
    context_->Release("cuModuleUnload",
                      [this](const DriverTable& driver) { return driver.ModuleUnload(handle_); });
  }
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  Status Load(const KernelImage& image) {
    return context_->Run("cuModuleLoadData", [&](const DriverTable& driver) {
      return driver.ModuleLoadData(&handle_, image.bytes.data());
    });
  }

  // Whether Find loads the code of a kernel at once.
  bool is_eager() const { return context_->driver().FuncLoad != nullptr; }

  Result<FunctionHandle> Find(const std::string& name) const {
    FunctionHandle function = nullptr;
    LMDBIO_TRY_VOID(context_->Run("cuModuleGetFunction of " + name, [&](const auto& driver) {
      return driver.ModuleGetFunction(&function, handle_, name.c_str());
    }));
    if (!is_eager()) return function;
    LMDBIO_TRY_VOID(context_->Run("cuFuncLoad of " + name, [&](const DriverTable& driver) {
      return driver.FuncLoad(function);
    }));
    return function;
  }

 private:
  const std::shared_ptr<PrimaryContext> context_;
  ModuleHandle handle_ = nullptr;
};

DeviceKernels::DeviceKernels(int multiprocessors, std::unique_ptr<LoadedModule> loaded,
                             Functions functions)
    : multiprocessors_(multiprocessors),
      module_(std::move(loaded)),
      functions_(std::move(functions)) {}

DeviceKernels::~DeviceKernels() = default;

Result<std::unique_ptr<DeviceKernels>> DeviceKernels::Load(Device& device,
                                                           const KernelImage& image) {
  const device::DeviceFacts& facts = device.facts();
  if (image.bytes.empty()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("GPU {}: this lmdbio was built without kernels for GPUs; build it with "
                            "nvcc, or with -DLMDBIO_CUDA=ON to see what is missing",
                            facts.ordinal));
  }
  auto loaded = std::make_unique<LoadedModule>(device.context());
  if (const Status status = loaded->Load(image); !status) {
    return Fail(LoadError(facts, image, status.error()));
  }
  Functions functions;
  for (const std::string_view name : kNames) {
    LMDBIO_TRY(functions[std::string(name)], loaded->Find(std::string(name)));
  }
  const bool is_eager = loaded->is_eager();
  auto kernels = std::unique_ptr<DeviceKernels>(
      new DeviceKernels(facts.multiprocessors, std::move(loaded), std::move(functions)));
  if (!is_eager) LMDBIO_TRY_VOID(kernels->LaunchAll(device));
  return kernels;
}

// Zeros are no work for any kernel. The driver copies as many of them as the kernel's table has.
Status DeviceKernels::LaunchAll(Device& device) const {
  LMDBIO_TRY(DeviceStream stream, device.MakeStream());
  static_assert(sizeof(PackTable) >= sizeof(ReduceTable));
  static_assert(sizeof(PackTable) >= sizeof(GatherTable));
  alignas(PackTable) const std::array<std::byte, sizeof(PackTable)> nothing = {};
  for (const auto& [name, function] : functions_) {
    LMDBIO_TRY_VOID(
        stream.Launch(function, {.blocks = 1, .threads = kBlockThreads}, nothing.data()));
  }
  return stream.Synchronize();
}

FunctionHandle DeviceKernels::FunctionOf(const std::string& name) const {
  const auto found = functions_.find(name);
  LMDBIO_CHECK(found != functions_.end());
  return found->second;
}

Status DeviceKernels::Launch(DeviceStream& stream, const ReduceWork& work) const {
  LMDBIO_TRY(const ReduceTable table, PlanReduce(work));
  if (work.count == 0) return {};
  const auto name =
      fmt::format("lmdbio_reduce_{}_{}", sync::NameOf(work.reduction.op), sync::NameOf(work.type));
  const uint64_t in_words = table.words * kWordBytes;
  const uint64_t elements = (table.size_bytes - in_words) / sync::ElementBytes(work.type);
  const uint64_t threads = std::max(table.words, elements);
  const uint64_t blocks = (threads + kBlockThreads - 1) / kBlockThreads;
  return stream.Launch(FunctionOf(name), ShapeOf(blocks, multiprocessors_, work.blocks_max, kTurns),
                       &table);
}

Status DeviceKernels::Launch(DeviceStream& stream, const PackWork& work) const {
  constexpr uint64_t kBlockBytes = kBlockThreads * kWordBytes;
  LMDBIO_TRY(const std::vector<PackPart> parts, PlanPack(work));
  PackTable table;
  LMDBIO_TRY(table.scale, PlanScale(work.type, work.scale));
  const bool is_scaled = table.scale.is_one == 0;
  const auto function = FunctionOf(
      is_scaled ? fmt::format("lmdbio_pack_{}", sync::NameOf(work.type)) : "lmdbio_pack_bytes");
  for (size_t first = 0; first < parts.size(); first += kPackPartsMax) {
    const size_t count = std::min<size_t>(kPackPartsMax, parts.size() - first);
    std::vector<PackPart> chosen(parts.begin() + static_cast<ptrdiff_t>(first),
                                 parts.begin() + static_cast<ptrdiff_t>(first + count));
    const uint64_t before = first == 0 ? 0 : parts[first - 1].end;
    for (PackPart& part : chosen) part.end -= before;
    const uint64_t units = (chosen.back().end + kBlockBytes - 1) / kBlockBytes;
    const device::LaunchShape shape = ShapeOf(units, multiprocessors_, work.blocks_max, kTurns);
    FillPackTable(chosen, shape.blocks, table);
    LMDBIO_TRY_VOID(stream.Launch(function, shape, &table));
  }
  return {};
}

Status DeviceKernels::Launch(DeviceStream& stream, const GatherWork& work) const {
  constexpr uint64_t kTeams = kGatherBlockThreads / kGatherTeamThreads;
  LMDBIO_TRY(const GatherTable table, PlanGather(work));
  if (table.piece_count == 0) return {};
  const uint64_t blocks = (table.piece_count + kTeams - 1) / kTeams;
  return stream.Launch(FunctionOf("lmdbio_gather"),
                       ShapeOf(blocks, multiprocessors_, work.blocks_max, 1, kGatherBlockThreads),
                       &table);
}

}  // namespace lmdbio::kernels
