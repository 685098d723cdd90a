// D8: whole calls of the synchronizer on tensors of a GPU, with the cache of pointers and without.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/on_device/device_timer.h"
#include "bench/on_device/figure_parts.h"
#include "bench/on_device/repeated_bytes.h"
#include "bench/on_device/roofs.h"
#include "bench/on_device/unknown_memory.h"
#include "lmdbio/device/pointer_cache.h"
#include "lmdbio/ranks/group/thread_group.h"
#include "lmdbio/sync/engine/synchronizer.h"

namespace lmdbio::figures {
namespace {

using device::CacheCheck;
using sync::Synchronizer;

constexpr int kRanks = 2;
constexpr int kCallsASample = 50;
constexpr uint64_t kBufferBytes = 1 << 20;  // of each synchronizer, on the GPU
constexpr std::array<CacheCheck, 3> kChecks = {CacheCheck::kBufferId, CacheCheck::kNone,
                                               CacheCheck::kNoCache};
constexpr size_t kChecked = 0;
constexpr size_t kUnchecked = 1;
constexpr size_t kWithout = 2;

// Ascending.
std::vector<uint64_t> Sizes(const FigureSettings& settings) {
  constexpr uint64_t kLargest = 128 << 10;
  if (settings.is_quick) return {8, settings.AtMost(kLargest)};
  std::vector<uint64_t> sizes;
  for (const uint64_t size_bytes : {uint64_t{8}, uint64_t{128}, uint64_t{2048}, uint64_t{16384}}) {
    if (size_bytes < settings.AtMost(kLargest)) sizes.push_back(size_bytes);
  }
  sizes.push_back(settings.AtMost(kLargest));
  return sizes;
}

std::string RowName(uint64_t size_bytes, const char* what) {
  return fmt::format("AllReduce of {}, {} ranks: {}", SizeText(size_bytes), kRanks, what);
}
constexpr const char* kCheckedRatio = "time with the cache by that without";
constexpr const char* kUncheckedRatio = "time with the unchecked cache by that without";
constexpr const char* kTime = "a call with the cache";

// Microseconds a call: [kChecks][samples].
using CallTimes = std::array<std::vector<double>, kChecks.size()>;

// A rank, which is a thread, with a synchronizer for each kind of cache.
class CallRank {
 public:
  CallRank(FigureRun& run, ranks::Group& group) : run_(run), group_(group) {}

  // Collective.
  Status Make(uint64_t size_bytes_max) {
    for (size_t c = 0; c < kChecks.size(); ++c) {
      sync::SyncOptions options;
      options.device = static_cast<uint32_t>(run_.options().ordinal) + 1;
      options.device_buffer_bytes = kBufferBytes;
      sync::SyncParts parts;
      parts.pointer_check = kChecks[c];
      LMDBIO_TRY(synchronizers_[c], Synchronizer::Create(group_, options, std::move(parts)));
    }
    LMDBIO_TRY(UnknownMemory input, UnknownMemory::Allocate(run_.device(), size_bytes_max));
    input_.emplace(std::move(input));
    LMDBIO_TRY(UnknownMemory output, UnknownMemory::Allocate(run_.device(), size_bytes_max));
    output_.emplace(std::move(output));
    LMDBIO_TRY(PinnedSpace space, PinnedSpace::Make(run_.device(), size_bytes_max));
    space_.emplace(std::move(space));
    LMDBIO_TRY(device::DeviceStream stream, run_.device().MakeStream());
    stream_.emplace(std::move(stream));
    const std::vector<float> values(size_bytes_max / sizeof(float),
                                    static_cast<float>(group_.rank() + 1));
    std::memcpy(space_->bytes().data(), values.data(), size_bytes_max);
    LMDBIO_TRY_VOID(stream_->CopyIn(input_->begin(), space_->pinned(), 0, size_bytes_max));
    return AwaitDone(*stream_);
  }

  // Collective.
  Result<CallTimes> Time(uint64_t size_bytes) {
    const int calls = run_.options().sample_seconds > 0 ? kCallsASample : 1;
    CallTimes times;
    for (int i = 0; i <= run_.options().sample_count; ++i) {
      for (size_t c = 0; c < kChecks.size(); ++c) {
        const double begin = SecondsNow();
        for (int k = 0; k < calls; ++k) LMDBIO_TRY_VOID(Call(*synchronizers_[c], size_bytes));
        const double seconds = SecondsNow() - begin;
        if (i > 0) times[c].push_back(seconds * 1e6 / calls);  // the first makes plans
        if (i == 0) LMDBIO_TRY_VOID(Check(size_bytes));
      }
    }
    return times;
  }

  // Collective.
  Status Shutdown() {
    for (const auto& synchronizer : synchronizers_) LMDBIO_TRY_VOID(synchronizer->Shutdown());
    return {};
  }

 private:
  Status Call(Synchronizer& synchronizer, uint64_t size_bytes) {
    sync::Submission submission =
        sync::AllReduceOf(fmt::format("tensor{}", size_bytes), nullptr, nullptr,
                          static_cast<int64_t>(size_bytes / sizeof(float)));
    submission.on_device = {input_->begin(), output_->begin(), stream_->native()};
    LMDBIO_TRY(sync::Handle handle, synchronizer.Submit(std::move(submission)));
    return handle.Wait();
  }

  // The sum of all ranks is there, and is removed for the next check.
  Status Check(uint64_t size_bytes) {
    LMDBIO_TRY_VOID(stream_->CopyOut(space_->pinned(), 0, output_->begin(), size_bytes));
    LMDBIO_TRY_VOID(stream_->Fill(output_->begin(), std::byte{0}, size_bytes));
    LMDBIO_TRY_VOID(AwaitDone(*stream_));
    const std::vector<float> sums(size_bytes / sizeof(float), kRanks * (kRanks + 1) / 2);
    if (std::memcmp(space_->bytes().data(), sums.data(), size_bytes) == 0) return {};
    return Fail(ErrorCode::kInternal, fmt::format("a sum of {} bytes is wrong", size_bytes));
  }

  FigureRun& run_;
  ranks::Group& group_;
  std::optional<UnknownMemory> input_;
  std::optional<UnknownMemory> output_;
  std::optional<PinnedSpace> space_;
  std::optional<device::DeviceStream> stream_;
  std::array<std::unique_ptr<Synchronizer>, kChecks.size()> synchronizers_;
};

// Collective. The times of each size.
Result<std::vector<CallTimes>> TimeCalls(FigureRun& run, ranks::Group& group) {
  const std::vector<uint64_t> sizes = Sizes(run.options());
  CallRank rank(run, group);
  LMDBIO_TRY_VOID(rank.Make(sizes.back()));
  std::vector<CallTimes> times;
  for (const uint64_t size_bytes : sizes) {
    LMDBIO_TRY(CallTimes one, rank.Time(size_bytes));
    times.push_back(std::move(one));
  }
  LMDBIO_TRY_VOID(rank.Shutdown());
  return times;
}

std::vector<double> Ratios(const CallTimes& times, size_t with) {
  std::vector<double> ratios;
  for (size_t i = 0; i < times[with].size(); ++i) {
    ratios.push_back(times[with][i] / times[kWithout][i]);
  }
  return ratios;
}

Status MeasureCalls(FigureRun& run) {
  std::mutex mutex;
  std::optional<Error> failure;
  std::vector<CallTimes> times;
  ranks::RunAsThreads({.rank_count = kRanks}, [&](ranks::Group& group) {
    Result<std::vector<CallTimes>> timed = TimeCalls(run, group);
    const std::lock_guard lock(mutex);
    if (!timed) {
      // The other rank fails because this one does.
      if (!failure || failure->code() == ErrorCode::kPeerFailed) failure = timed.error().Copy();
    } else if (group.rank() == 0) {
      times = std::move(*timed);
    }
  });
  if (failure) return Fail(std::move(*failure));
  const std::vector<uint64_t> sizes = Sizes(run.options());
  for (size_t s = 0; s < sizes.size(); ++s) {
    const std::string without = fmt::format("a call without the cache takes {:.1f} us",
                                            tools::SpreadOf(times[s][kWithout]).median);
    run.Measure(RowName(sizes[s], kCheckedRatio), [&]() -> Result<Measured> {
      return Measured{.samples = Ratios(times[s], kChecked),
                      .note = without + "; published: 1/4.1"};
    });
    run.Measure(RowName(sizes[s], kUncheckedRatio), [&]() -> Result<Measured> {
      return Measured{.samples = Ratios(times[s], kUnchecked)};
    });
    run.Measure(RowName(sizes[s], kTime),
                [&]() -> Result<Measured> { return Measured{.samples = times[s][kChecked]}; });
  }
  return {};
}

}  // namespace

FigurePart CallFigures(const FigureSettings& settings) {
  FigurePart part = {.id = "D8",
                     .title = "whole calls with the cache of pointers, and without",
                     .measure = &MeasureCalls};
  for (const uint64_t size_bytes : Sizes(settings)) {
    part.Plan(RowName(size_bytes, kCheckedRatio), "ratio", AtMost(1));
    part.Plan(RowName(size_bytes, kUncheckedRatio), "ratio", NoBar());
    part.Plan(RowName(size_bytes, kTime), "us", NoBar());
  }
  return part;
}

}  // namespace lmdbio::figures
