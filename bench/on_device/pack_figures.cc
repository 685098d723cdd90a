// D2: tensors of a network are packed into a buffer and unpacked from it, by one launch, by the
// copy of the device and by one copy for each tensor.

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/on_device/counted_launches.h"
#include "bench/on_device/device_timer.h"
#include "bench/on_device/figure_parts.h"
#include "bench/on_device/has_kernels.h"
#include "bench/on_device/repeated_bytes.h"
#include "bench/on_device/roofs.h"
#include "bench/sync/layers/layer_network.h"
#include "lmdbio/base/align.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::figures {
namespace {

using bench::LayerNetwork;
using device::DeviceMemory;
using device::DeviceSpan;
using kernels::DeviceKernels;
using kernels::PackDirection;
using kernels::PackWork;

constexpr const char* kNetworks[] = {"resnet50", "efficientnet_b0"};
constexpr uint64_t kRoofBytes = 512 * kMebi;
constexpr uint64_t kBarBytes = 64 * kMebi;  // smaller lists lie in the cache of a GPU in part
constexpr uint64_t kTensorBytes = 512;      // tensors begin at its multiples, as those of PyTorch
constexpr uint64_t kPlaceBytes = 64;        // and in a fusion buffer at its multiples
constexpr double kScale = 1.0 / 3;          // of unpacking, as for an average

struct PackWay {
  PackDirection direction;
  const char* name;
  double scale;
};
constexpr PackWay kPackWays[] = {{PackDirection::kPack, "pack", 1},
                                 {PackDirection::kUnpack, "unpack and scale", kScale}};

constexpr const char* kByRoof = "bytes a second by those of a copy";
constexpr const char* kByCopies = "time by that of one copy a tensor";
constexpr const char* kLaunches = "launches";

std::string RowName(const std::string& network, const PackWay& direction, const char* what) {
  return fmt::format("{}, {}: {}", network, direction.name, what);
}

// The tensors of a network, the buffer, and what is compared.
class PackBench {
 public:
  static Result<PackBench> Make(FigureRun& run, const LayerNetwork& network) {
    PackBench bench(run.options());
    LMDBIO_TRY(auto counted, CountedLaunches::Open(run));
    bench.counted_ = std::move(counted);
    device::Device& device = bench.counted_->device();
    LMDBIO_TRY(bench.kernels_, DeviceKernels::Load(device));
    uint64_t tensor_bytes = 0;
    std::vector<uint64_t> begins;
    for (const bench::GradientTensor& tensor : network.tensors) {
      const uint64_t size_bytes = tensor.count * sizeof(float);
      begins.push_back(tensor_bytes);
      tensor_bytes += AlignUp(size_bytes, kTensorBytes);
      bench.offsets_.push_back(bench.buffer_bytes_);
      bench.buffer_bytes_ += AlignUp(size_bytes, kPlaceBytes);
      bench.moved_bytes_ += 2 * static_cast<double>(size_bytes);
    }
    LMDBIO_TRY(DeviceMemory memory, device.Allocate(tensor_bytes));
    for (size_t i = 0; i < begins.size(); ++i) {
      bench.tensors_.push_back(
          {memory.begin() + begins[i], network.tensors[i].count * sizeof(float)});
    }
    bench.memory_.push_back(std::move(memory));
    LMDBIO_TRY(DeviceMemory buffer, device.Allocate(bench.buffer_bytes_));
    bench.memory_.push_back(std::move(buffer));
    LMDBIO_TRY(DeviceCopy roof, DeviceCopy::Make(device, run.options().AtMost(kRoofBytes)));
    bench.roof_.emplace(std::move(roof));
    LMDBIO_TRY(PinnedSpace room, PinnedSpace::Make(device, tensor_bytes));
    bench.room_.emplace(std::move(room));
    LMDBIO_TRY(DeviceTimer timer, DeviceTimer::Make(device));
    bench.timer_.emplace(std::move(timer));
    std::mt19937_64 random(7);
    bench.period_ = RandomNumbers(sync::DataType::kFloat32, PeriodBytes(tensor_bytes), random);
    return bench;
  }

  void Measure(FigureRun& run, const std::string& network, const PackWay& direction) {
    const Status checked = Check(direction);
    const auto row = [&](const char* what, const std::function<Result<Measured>()>& measure) {
      run.Measure(RowName(network, direction, what), [&]() -> Result<Measured> {
        if (!checked) return Fail(checked.error().Copy());
        return measure();
      });
    };
    const Enqueue work = [&] { return Launch(direction); };
    row(kByRoof, [&]() -> Result<Measured> {
      const auto copy = [&] { return roof_->EnqueueOn(timer_->stream()); };
      LMDBIO_TRY(const TurnTimes times, TimeInTurns(*timer_, *options_, copy, work));
      const double roof = roof_->moved_bytes() / tools::SpreadOf(times.first).median / 1e9;
      return Measured{times.Ratios(moved_bytes_ / roof_->moved_bytes()),
                      fmt::format("{} tensors, {:.1f} MB; roof {:.0f} GB/s read and written",
                                  tensors_.size(), moved_bytes_ / 2e6, roof)};
    });
    row(kByCopies, [&]() -> Result<Measured> {
      const auto copies = [&] { return CopySingly(direction); };
      LMDBIO_TRY(const TurnTimes times, TimeInTurns(*timer_, *options_, work, copies));
      return Measured{
          .samples = times.Ratios(),
          .note = fmt::format("copies take {:.1f} us", tools::SpreadOf(times.second).median * 1e6)};
    });
    row(kLaunches, [&]() -> Result<Measured> {
      const uint64_t before = counted_->count();
      LMDBIO_TRY_VOID(work());
      const auto launches = static_cast<double>(counted_->count() - before);
      LMDBIO_TRY_VOID(AwaitDone(timer_->stream()));
      return Measured{.samples = {launches}, .note = "counted at the driver"};
    });
  }

 private:
  explicit PackBench(const FigureSettings& options) : options_(&options) {}

  const DeviceMemory& tensor_memory() const { return memory_[0]; }
  const DeviceMemory& buffer() const { return memory_[1]; }

  Status Launch(const PackWay& direction) {
    return kernels_->Launch(timer_->stream(), PackWork{.direction = direction.direction,
                                                       .tensors = tensors_,
                                                       .offsets = offsets_,
                                                       .buffer = buffer().span(),
                                                       .scale = direction.scale});
  }

  Status CopySingly(const PackWay& direction) {
    const bool is_packed = direction.direction == PackDirection::kPack;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const device::DeviceAddress place = buffer().begin() + offsets_[i];
      LMDBIO_TRY_VOID(timer_->stream().Copy(is_packed ? place : tensors_[i].begin,
                                            is_packed ? tensors_[i].begin : place,
                                            tensors_[i].size_bytes));
    }
    return {};
  }

  // Packs or unpacks numbers, and compares every tensor with what the host makes of them.
  Status Check(const PackWay& direction) {
    const bool is_packed = direction.direction == PackDirection::kPack;
    const DeviceMemory& from = is_packed ? tensor_memory() : buffer();
    const DeviceMemory& to = is_packed ? buffer() : tensor_memory();
    device::DeviceStream& stream = timer_->stream();
    Repeat(period_, room_->bytes());
    const std::vector<std::byte> source(room_->bytes().begin(), room_->bytes().end());
    LMDBIO_TRY_VOID(stream.CopyIn(from.begin(), room_->pinned(), 0, from.size_bytes()));
    LMDBIO_TRY_VOID(stream.Fill(to.begin(), std::byte{0xA5}, to.size_bytes()));
    LMDBIO_TRY_VOID(Launch(direction));
    LMDBIO_TRY_VOID(AwaitDone(stream));
    LMDBIO_TRY_VOID(stream.CopyOut(room_->pinned(), 0, to.begin(), to.size_bytes()));
    LMDBIO_TRY_VOID(AwaitDone(stream));
    std::vector<std::byte> expected;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const uint64_t in_memory = tensors_[i].begin.value - tensor_memory().begin().value;
      const uint64_t from_at = is_packed ? in_memory : offsets_[i];
      const uint64_t to_at = is_packed ? offsets_[i] : in_memory;
      const uint64_t size_bytes = tensors_[i].size_bytes;
      expected.resize(size_bytes);
      sync::Scale(sync::DataType::kFloat32, direction.scale, expected.data(), &source[from_at],
                  size_bytes / sizeof(float));
      if (std::memcmp(expected.data(), &room_->bytes()[to_at], size_bytes) == 0) continue;
      return Fail(ErrorCode::kInternal,
                  fmt::format("{}: tensor {} has wrong bytes", direction.name, i));
    }
    return {};
  }

  const FigureSettings* options_;
  std::vector<DeviceSpan> tensors_;
  std::vector<uint64_t> offsets_;
  uint64_t buffer_bytes_ = 0;
  double moved_bytes_ = 0;
  std::vector<std::byte> period_;
  std::unique_ptr<CountedLaunches> counted_;  // outlives all below
  std::unique_ptr<DeviceKernels> kernels_;
  std::vector<DeviceMemory> memory_;
  std::optional<DeviceCopy> roof_;
  std::optional<PinnedSpace> room_;
  std::optional<DeviceTimer> timer_;
};

Result<LayerNetwork> Network(const FigureSettings& options, const std::string& folder,
                             const std::string& name) {
  const std::string path = fmt::format("{}/{}.json", folder, name);
  LMDBIO_TRY(LayerNetwork whole, bench::ReadNetwork(path, 1));
  const uint64_t whole_bytes = whole.gradient_bytes();
  if (whole_bytes <= options.size_bytes_max) return whole;
  return bench::ReadNetwork(
      path, static_cast<double>(options.size_bytes_max) / static_cast<double>(whole_bytes));
}

Status MeasurePack(FigureRun& run, const std::string& folder) {
  if (!HasKernels(run)) return {};
  for (const char* const name : kNetworks) {
    LMDBIO_TRY(const LayerNetwork network, Network(run.options(), folder, name));
    LMDBIO_TRY(PackBench bench, PackBench::Make(run, network));
    for (const PackWay& direction : kPackWays) bench.Measure(run, name, direction);
  }
  return {};
}

}  // namespace

FigurePart PackFigures(const FigureSettings& options, const std::string& networks_folder) {
  FigurePart part = {.id = "D2",
                     .title = "tensors of a network into a buffer and out of it, by one launch",
                     .measure = [=](FigureRun& run) { return MeasurePack(run, networks_folder); }};
  for (const char* const name : kNetworks) {
    const auto network = Network(options, networks_folder, name);
    const bool is_large = network && network->gradient_bytes() >= kBarBytes;
    for (const PackWay& direction : kPackWays) {
      part.Plan(RowName(name, direction, kByRoof), "ratio", is_large ? AtLeast(0.8) : NoBar());
      part.Plan(RowName(name, direction, kByCopies), "ratio", AtMost(0.25));
      part.Plan(RowName(name, direction, kLaunches), "launches", AtMost(1));
    }
  }
  return part;
}

}  // namespace lmdbio::figures
