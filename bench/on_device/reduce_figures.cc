// D1: kernels that reduce, by the copy of the device.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/on_device/device_timer.h"
#include "bench/on_device/figure_parts.h"
#include "bench/on_device/has_kernels.h"
#include "bench/on_device/repeated_bytes.h"
#include "bench/on_device/roofs.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/sync/reduce/reduce.h"

namespace lmdbio::figures {
namespace {

using device::DeviceMemory;
using device::DeviceSpan;
using kernels::DeviceKernels;
using kernels::ReduceWork;
using sync::DataType;

constexpr DataType kTypes[] = {DataType::kFloat32,  DataType::kFloat64, DataType::kFloat16,
                               DataType::kBFloat16, DataType::kInt32,   DataType::kInt64};
constexpr size_t kSourceCounts[] = {2, 4, 8};
constexpr size_t kSourcesMax = 8;
constexpr uint64_t kReduceRoofBytes = 512 * kMebi;

std::vector<uint64_t> SourceSizes(const FigureSettings& options) {
  if (options.is_quick) return {options.AtMost(64 * kMebi)};
  std::vector<uint64_t> sizes = {options.AtMost(64 * kMebi), options.AtMost(256 * kMebi)};
  if (sizes[0] == sizes[1]) sizes.pop_back();
  return sizes;
}

std::string RowName(DataType type, size_t source_count, uint64_t size_bytes) {
  return fmt::format("sum {}, {} sources, {} each", sync::NameOf(type), source_count,
                     SizeText(size_bytes));
}

// Sources and a target of one size, for all types and numbers of sources.
class ReduceBench {
 public:
  static Result<ReduceBench> Make(FigureRun& run, const DeviceKernels& kernels,
                                  uint64_t size_bytes) {
    ReduceBench bench(kernels, run.options(), size_bytes);
    for (size_t i = 0; i <= kSourcesMax; ++i) {
      LMDBIO_TRY(DeviceMemory memory, run.device().Allocate(size_bytes));
      bench.memory_.push_back(std::move(memory));
    }
    LMDBIO_TRY(DeviceCopy roof,
               DeviceCopy::Make(run.device(), run.options().AtMost(kReduceRoofBytes)));
    bench.roof_.emplace(std::move(roof));
    LMDBIO_TRY(PinnedSpace room, PinnedSpace::Make(run.device(), size_bytes));
    bench.room_.emplace(std::move(room));
    LMDBIO_TRY(DeviceTimer timer, DeviceTimer::Make(run.device()));
    bench.timer_.emplace(std::move(timer));
    return bench;
  }

  // Makes all sources numbers of this type.
  Status Fill(DataType type) {
    type_ = type;
    std::mt19937_64 random(static_cast<uint64_t>(type));
    periods_.clear();
    for (size_t s = 0; s < kSourcesMax; ++s) {
      periods_.push_back(RandomNumbers(type, PeriodBytes(size_bytes_), random));
      Repeat(periods_.back(), room_->bytes());
      LMDBIO_TRY_VOID(timer_->stream().CopyIn(memory_[s].begin(), room_->pinned(), 0, size_bytes_));
      LMDBIO_TRY_VOID(AwaitDone(timer_->stream()));
    }
    return {};
  }

  // The rate of the kernel by that of the copy.
  Result<Measured> Measure(size_t source_count) {
    std::vector<DeviceSpan> sources;
    for (size_t s = 0; s < source_count; ++s) sources.push_back(memory_[s].span());
    const std::vector<DeviceSpan> targets = {memory_[kSourcesMax].span()};
    const ReduceWork work = {.sources = sources,
                             .targets = targets,
                             .count = size_bytes_ / sync::ElementBytes(type_),
                             .type = type_};
    const auto reduce = [&] { return kernels_->Launch(timer_->stream(), work); };
    const auto copy = [&] { return roof_->EnqueueOn(timer_->stream()); };
    LMDBIO_TRY_VOID(timer_->stream().Fill(targets[0].begin, std::byte{0xA5}, size_bytes_));
    LMDBIO_TRY_VOID(reduce());
    LMDBIO_TRY_VOID(Check(source_count));
    LMDBIO_TRY(const TurnTimes times, TimeInTurns(*timer_, *options_, copy, reduce));
    const double moved_bytes =
        static_cast<double>(source_count + 1) * static_cast<double>(size_bytes_);
    const double roof = roof_->moved_bytes() / tools::SpreadOf(times.first).median / 1e9;
    return Measured{times.Ratios(moved_bytes / roof_->moved_bytes()),
                    fmt::format("roof {:.0f} GB/s read and written", roof)};
  }

 private:
  ReduceBench(const DeviceKernels& kernels, const FigureSettings& options, uint64_t size_bytes)
      : kernels_(&kernels), options_(&options), size_bytes_(size_bytes) {}

  // The result has the bits that the host has for the same sources.
  Status Check(size_t source_count) {
    LMDBIO_TRY_VOID(
        timer_->stream().CopyOut(room_->pinned(), 0, memory_[kSourcesMax].begin(), size_bytes_));
    LMDBIO_TRY_VOID(AwaitDone(timer_->stream()));
    std::vector<const std::byte*> sources;
    for (size_t s = 0; s < source_count; ++s) sources.push_back(periods_[s].data());
    std::vector<std::byte> expected(periods_[0].size());
    sync::ReduceAll(type_, sync::ReduceOp::kSum, expected.data(), sources,
                    expected.size() / sync::ElementBytes(type_));
    return CheckRepeats(expected, room_->bytes(), "a sum of the device");
  }

  const DeviceKernels* kernels_;
  const FigureSettings* options_;
  uint64_t size_bytes_;
  DataType type_ = DataType::kFloat32;
  std::vector<std::vector<std::byte>> periods_;  // of each source
  std::vector<DeviceMemory> memory_;             // sources, then the target
  std::optional<DeviceCopy> roof_;
  std::optional<PinnedSpace> room_;
  std::optional<DeviceTimer> timer_;
};

Status MeasureReduce(FigureRun& run) {
  if (!HasKernels(run)) return {};
  LMDBIO_TRY(const auto kernels, DeviceKernels::Load(run.device()));
  for (const uint64_t size_bytes : SourceSizes(run.options())) {
    LMDBIO_TRY(ReduceBench bench, ReduceBench::Make(run, *kernels, size_bytes));
    for (const DataType type : kTypes) {
      LMDBIO_TRY_VOID(bench.Fill(type));
      for (const size_t count : kSourceCounts) {
        run.Measure(RowName(type, count, size_bytes), [&] { return bench.Measure(count); });
      }
    }
  }
  return {};
}

}  // namespace

FigurePart ReduceFigures(const FigureSettings& options) {
  FigurePart part = {.id = "D1",
                     .title = "kernels that reduce: bytes a second by those of a copy",
                     .measure = &MeasureReduce};
  for (const uint64_t size_bytes : SourceSizes(options)) {
    for (const DataType type : kTypes) {
      for (const size_t count : kSourceCounts) {
        part.Plan(RowName(type, count, size_bytes), "ratio", AtLeast(0.9));
      }
    }
  }
  return part;
}

}  // namespace lmdbio::figures
