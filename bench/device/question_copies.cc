// Q5: the roofs of copies, at several sizes, from pinned and from pageable memory.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/device/probe_trials.h"

namespace lmdbio::probe {
namespace {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceMemory;
using device::DeviceStream;
using device::DriverTable;

enum class CopyKind {
  kOnDevice,
  kToPinned,  // to the device, from pinned memory
  kFromPinned,
  kBothPinned,
  kToPageable,
  kFromPageable,
};

struct CopyName {
  CopyKind kind;
  const char* name;
};
constexpr CopyName kCopies[] = {
    {CopyKind::kOnDevice, "on the device, bytes read and written"},
    {CopyKind::kToPinned, "to the device, pinned"},
    {CopyKind::kFromPinned, "from the device, pinned"},
    {CopyKind::kBothPinned, "both ways at once, pinned, sum"},
    {CopyKind::kToPageable, "to the device, pageable"},
    {CopyKind::kFromPageable, "from the device, pageable"},
};
constexpr uint64_t kMebi = 1 << 20;
constexpr uint64_t kSizes[] = {kMebi, 16 * kMebi, 256 * kMebi};
constexpr uint64_t kSampleBytes = 256 * kMebi;  // small copies are repeated in a sample
constexpr uint64_t kRepeatsMax = 64;

std::string CopyRow(const CopyName& copy, uint64_t size_bytes) {
  return fmt::format("{}, {} MiB", copy.name, size_bytes / kMebi);
}

class CopyBench {
 public:
  static Result<CopyBench> Make(const ProbePart& part, uint64_t size_bytes) {
    LMDBIO_TRY(DeviceMemory first, part.device().Allocate(size_bytes));
    LMDBIO_TRY(DeviceMemory second, part.device().Allocate(size_bytes));
    LMDBIO_TRY(PinnedRoom room, PinnedRoom::Make(part, 2 * size_bytes));
    LMDBIO_TRY(DeviceStream stream, part.device().MakeStream());
    LMDBIO_TRY(DeviceStream back, part.device().MakeStream());
    LMDBIO_TRY(DeviceEvent begin, part.device().MakeEvent(DeviceEventKind::kTimed));
    LMDBIO_TRY(DeviceEvent end, part.device().MakeEvent(DeviceEventKind::kTimed));
    LMDBIO_TRY(DeviceEvent turn, part.device().MakeEvent(DeviceEventKind::kLocal));
    return CopyBench(part, size_bytes, std::move(first), std::move(second), std::move(room),
                     std::move(stream), std::move(back), std::move(begin), std::move(end),
                     std::move(turn));
  }

  Result<std::vector<double>> Rates(CopyKind kind) {
    const uint64_t repeats = std::clamp(kSampleBytes / size_bytes_, uint64_t{1}, kRepeatsMax);
    LMDBIO_TRY_VOID(Once(kind, 1).map([](double) {}));  // pages are touched, clocks rise
    std::vector<double> rates;
    for (int i = 0; i < part_->options().sample_count; ++i) {
      LMDBIO_TRY(const double seconds, Once(kind, repeats));
      const bool counts_twice = kind == CopyKind::kOnDevice || kind == CopyKind::kBothPinned;
      rates.push_back(static_cast<double>((counts_twice ? 2 : 1) * repeats * size_bytes_) / 1e9 /
                      seconds);
    }
    return rates;
  }

 private:
  CopyBench(const ProbePart& part, uint64_t size_bytes, DeviceMemory first, DeviceMemory second,
            PinnedRoom room, DeviceStream stream, DeviceStream back, DeviceEvent begin,
            DeviceEvent end, DeviceEvent turn)
      : part_(&part),
        size_bytes_(size_bytes),
        first_(std::move(first)),
        second_(std::move(second)),
        room_(std::move(room)),
        pageable_(new std::byte[size_bytes]()),
        stream_(std::move(stream)),
        back_(std::move(back)),
        begin_(std::move(begin)),
        end_(std::move(end)),
        turn_(std::move(turn)) {}

  // By events on the device.
  Result<double> Once(CopyKind kind, uint64_t repeats) {
    LMDBIO_TRY_VOID(stream_.Record(begin_));
    if (kind == CopyKind::kBothPinned) LMDBIO_TRY_VOID(back_.Await(begin_));
    for (uint64_t i = 0; i < repeats; ++i) LMDBIO_TRY_VOID(Copy(kind));
    if (kind == CopyKind::kBothPinned) {
      LMDBIO_TRY_VOID(back_.Record(turn_));
      LMDBIO_TRY_VOID(stream_.Await(turn_));
    }
    LMDBIO_TRY_VOID(stream_.Record(end_));
    LMDBIO_TRY_VOID(part_->AwaitDrained(stream_));
    LMDBIO_TRY(const double milliseconds, end_.MillisecondsSince(begin_));
    return std::max(milliseconds, 1e-6) / 1e3;
  }

  Status Copy(CopyKind kind) {
    switch (kind) {
      case CopyKind::kOnDevice:
        return stream_.Copy(second_.begin(), first_.begin(), size_bytes_);
      case CopyKind::kToPinned:
        return stream_.CopyIn(first_.begin(), room_.get(), 0, size_bytes_);
      case CopyKind::kFromPinned:
        return stream_.CopyOut(room_.get(), size_bytes_, second_.begin(), size_bytes_);
      case CopyKind::kBothPinned:
        LMDBIO_TRY_VOID(stream_.CopyIn(first_.begin(), room_.get(), 0, size_bytes_));
        return back_.CopyOut(room_.get(), size_bytes_, second_.begin(), size_bytes_);
      case CopyKind::kToPageable:
        return part_->context().Run("cuMemcpyHtoDAsync", [&](const DriverTable& driver) {
          return driver.MemcpyHtoDAsync(first_.begin().value, pageable_.get(), size_bytes_,
                                        stream_.native());
        });
      default:
        return part_->context().Run("cuMemcpyDtoHAsync", [&](const DriverTable& driver) {
          return driver.MemcpyDtoHAsync(pageable_.get(), second_.begin().value, size_bytes_,
                                        stream_.native());
        });
    }
  }

  const ProbePart* part_;
  uint64_t size_bytes_;
  DeviceMemory first_;
  DeviceMemory second_;
  PinnedRoom room_;
  std::unique_ptr<std::byte[]> pageable_;
  DeviceStream stream_;
  DeviceStream back_;  // for copies in the other direction
  DeviceEvent begin_;
  DeviceEvent end_;
  DeviceEvent turn_;
};

Status PlayCopies(const ProbePart& part) {
  for (const uint64_t size_bytes : kSizes) {
    if (size_bytes > part.options().size_bytes_max) {
      for (const CopyName& copy : kCopies) {
        part.Say({.name = CopyRow(copy, size_bytes), .note = "larger than --size-max"});
      }
      continue;
    }
    Result<CopyBench> bench = CopyBench::Make(part, size_bytes);
    for (const CopyName& copy : kCopies) {
      const std::string row = CopyRow(copy, size_bytes);
      if (bench) {
        part.SayResult(row, "GB/s", bench->Rates(copy.kind));
      } else {
        part.SayError(row, bench.error());
      }
    }
  }
  return {};
}

}  // namespace

void AddCopies(std::vector<Trial>& trials) {
  Trial trial = {.question = "Q5", .rows = {}, .seconds_max = 40, .play = &PlayCopies};
  for (const CopyName& copy : kCopies) {
    for (const uint64_t size_bytes : kSizes) trial.rows.push_back(CopyRow(copy, size_bytes));
  }
  trials.push_back(std::move(trial));
}

}  // namespace lmdbio::probe
