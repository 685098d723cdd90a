// Q6: records that lie scattered in pinned memory become rows on the device.

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/device/probe_trials.h"

namespace lmdbio::probe {
namespace {

using device::DeviceMemory;
using device::DeviceStream;
using device::DriverTable;
using device::MemcpyAttributes;

// As the records of the other benchmarks: in a window each begins at any byte.
struct GatherCase {
  const char* name;
  uint64_t record_bytes;
  uint64_t count_max;
};
constexpr GatherCase kCases[] = {{"3 KB", 3080, 4096}, {"196 KB", 196700, 256}};
constexpr const char* kSingly = "one copy a record";
constexpr const char* kBatched = "one call for all (cuMemcpyBatchAsync)";
constexpr const char* kKernel = "one kernel for all";
constexpr uint64_t kGapBytes = 37;  // between records

std::string GatherRow(const GatherCase& one, const char* way) {
  return fmt::format("records of {}, {}", one.name, way);
}

class GatherBench {
 public:
  static Result<GatherBench> Make(const ProbePart& part, const GatherCase& one) {
    const uint64_t fitting = part.options().size_bytes_max / (one.record_bytes + kGapBytes);
    const uint64_t count = std::clamp(fitting, uint64_t{2}, one.count_max);
    LMDBIO_TRY(PinnedRoom window, PinnedRoom::Make(part, count * (one.record_bytes + kGapBytes)));
    LMDBIO_TRY(PinnedRoom check, PinnedRoom::Make(part, count * one.record_bytes));
    LMDBIO_TRY(DeviceMemory rows, part.device().Allocate(count * one.record_bytes));
    LMDBIO_TRY(DeviceStream stream, part.device().MakeStream());
    return GatherBench(part, one.record_bytes, count, std::move(window), std::move(check),
                       std::move(rows), std::move(stream));
  }

  // GB/s by the clock of the host, from the first call until all rows are there.
  template <typename Enqueue>
  Result<std::vector<double>> Rates(Enqueue enqueue) {
    LMDBIO_TRY_VOID(stream_.Fill(rows_.begin(), std::byte{0}, rows_.size_bytes()));
    LMDBIO_TRY_VOID(part_->AwaitDrained(stream_));
    std::vector<double> rates;
    for (int i = 0; i < part_->options().sample_count; ++i) {
      const double begin = SecondsNow();
      LMDBIO_TRY_VOID((this->*enqueue)());
      LMDBIO_TRY_VOID(part_->AwaitDrained(stream_));
      rates.push_back(static_cast<double>(rows_.size_bytes()) / 1e9 / (SecondsNow() - begin));
    }
    LMDBIO_TRY_VOID(CheckRows());
    return rates;
  }

  Status EnqueueSingly() {
    for (uint64_t i = 0; i < count_; ++i) {
      LMDBIO_TRY_VOID(stream_.CopyIn(rows_.begin() + i * record_bytes_, window_.get(), Place(i),
                                     record_bytes_));
    }
    return {};
  }

  Status EnqueueBatch() {
    if (part_->driver().MemcpyBatchAsync == nullptr) {
      return Fail(ErrorCode::kUnsupported,
                  "this driver has no cuMemcpyBatchAsync, which came with CUDA 12.8");
    }
    if (to_.empty()) {
      for (uint64_t i = 0; i < count_; ++i) {
        to_.push_back(rows_.begin().value + i * record_bytes_);
        from_.push_back((window_.get().span().begin + Place(i)).value);
      }
      sizes_.assign(count_, record_bytes_);
    }
    MemcpyAttributes attributes = {};
    size_t first = 0;
    size_t failed = 0;
    return part_->context().Run("cuMemcpyBatchAsync", [&](const DriverTable& driver) {
      return driver.MemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), sizes_.size(),
                                     &attributes, &first, 1, &failed, stream_.native());
    });
  }

 private:
  GatherBench(const ProbePart& part, uint64_t record_bytes, uint64_t count, PinnedRoom window,
              PinnedRoom check, DeviceMemory rows, DeviceStream stream)
      : part_(&part),
        record_bytes_(record_bytes),
        count_(count),
        window_(std::move(window)),
        check_(std::move(check)),
        rows_(std::move(rows)),
        stream_(std::move(stream)) {
    for (uint64_t i = 0; i < count_; ++i) {
      std::memset(window_.data() + Place(i), static_cast<int>(i % 251 + 1), record_bytes_);
    }
  }

  // Neighbouring rows come from distant places, as in a shuffled batch.
  uint64_t Place(uint64_t row) const {
    const uint64_t half = (count_ + 1) / 2;
    const uint64_t slot = row % 2 == 0 ? row / 2 : half + row / 2;
    return slot * (record_bytes_ + kGapBytes);
  }

  Status CheckRows() {
    LMDBIO_TRY_VOID(stream_.CopyOut(check_.get(), 0, rows_.begin(), rows_.size_bytes()));
    LMDBIO_TRY_VOID(part_->AwaitDrained(stream_));
    for (uint64_t i = 0; i < count_; ++i) {
      const auto value = static_cast<std::byte>(i % 251 + 1);
      const std::byte* const row = check_.data() + i * record_bytes_;
      if (std::all_of(row, row + record_bytes_, [&](std::byte one) { return one == value; })) {
        continue;
      }
      return Fail(ErrorCode::kInternal, fmt::format("row {} has other bytes than its record", i));
    }
    return {};
  }

  const ProbePart* part_;
  uint64_t record_bytes_;
  uint64_t count_;
  PinnedRoom window_;
  PinnedRoom check_;
  DeviceMemory rows_;
  DeviceStream stream_;
  std::vector<uint64_t> to_;
  std::vector<uint64_t> from_;
  std::vector<size_t> sizes_;
};

Status PlayGather(const ProbePart& part) {
  for (const GatherCase& one : kCases) {
    part.Say({.name = GatherRow(one, kKernel), .note = "needs kernels"});
    Result<GatherBench> bench = GatherBench::Make(part, one);
    if (!bench) {
      for (const char* const way : {kSingly, kBatched}) {
        part.SayError(GatherRow(one, way), bench.error());
      }
      continue;
    }
    part.SayResult(GatherRow(one, kSingly), "GB/s", bench->Rates(&GatherBench::EnqueueSingly));
    part.SayResult(GatherRow(one, kBatched), "GB/s", bench->Rates(&GatherBench::EnqueueBatch));
  }
  return {};
}

}  // namespace

void AddGather(std::vector<Trial>& trials) {
  Trial trial = {.question = "Q6", .rows = {}, .seconds_max = 30, .play = &PlayGather};
  for (const GatherCase& one : kCases) {
    for (const char* const way : {kSingly, kBatched, kKernel}) {
      trial.rows.push_back(GatherRow(one, way));
    }
  }
  trials.push_back(std::move(trial));
}

}  // namespace lmdbio::probe
