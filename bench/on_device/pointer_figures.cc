// D7: what a pointer is, by the driver and by the cache.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/on_device/figure_parts.h"
#include "bench/on_device/unknown_memory.h"
#include "lmdbio/device/device_memory.h"
#include "lmdbio/device/pointer_cache.h"

namespace lmdbio::figures {
namespace {

using device::CacheCheck;
using device::DeviceMemory;
using device::PointerCache;
using device::PointerFacts;
using device::PointerKind;

constexpr uint64_t kRangeBytes = 4096;
constexpr size_t kRanges = 64;  // allocations of a program with an allocator of its own
constexpr int kQueriesASample = 1000;

constexpr const char* kQuery = "query of the driver";
constexpr const char* kOwnHit = "hit, memory of lmdbio";
constexpr const char* kUncheckedHit = "hit, other memory, not checked";
constexpr const char* kCheckedHit = "hit, other memory, checked by its buffer id";

std::string RatioRow(const char* hit) { return fmt::format("{}: time by that of a query", hit); }

using Describe = std::function<Result<PointerFacts>(size_t index)>;

// Nanoseconds a call.
Result<double> Time(const Describe& describe) {
  const double begin = SecondsNow();
  for (size_t i = 0; i < kQueriesASample; ++i) {
    LMDBIO_TRY_VOID(describe(i));
  }
  return (SecondsNow() - begin) * 1e9 / kQueriesASample;
}

class PointerBench {
 public:
  explicit PointerBench(FigureRun& run) : run_(run) {}

  Status Make() {
    for (size_t i = 0; i < kRanges; ++i) {
      LMDBIO_TRY(UnknownMemory memory, UnknownMemory::Allocate(run_.device(), kRangeBytes));
      unknown_.push_back(std::move(memory));
    }
    LMDBIO_TRY(DeviceMemory own, run_.device().Allocate(kRangeBytes));
    own_.emplace(std::move(own));
    return {};
  }

  void Measure() {
    run_.Measure(kQuery, [&]() -> Result<Measured> {
      std::vector<double> nanos;
      for (int i = 0; i <= run_.options().sample_count; ++i) {
        LMDBIO_TRY(const double one, Time(Query()));
        if (i > 0) nanos.push_back(one);  // the first fills caches
      }
      return Measured{.samples = nanos,
                      .note = fmt::format("seven attributes, {} allocations", kRanges)};
    });
    device::Device& gpu = run_.device();
    const auto* const own = reinterpret_cast<const void*>(own_->begin().value);
    Hit(kOwnHit, [&gpu, own](size_t) { return gpu.Describe(own); });
    Hit(kUncheckedHit, Cached(unchecked_));
    Hit(kCheckedHit, Cached(checked_));
  }

 private:
  // In the middle of a range of the program.
  const void* PointerOf(size_t index) const {
    const device::DeviceAddress begin = unknown_[index % kRanges].begin();
    return reinterpret_cast<const void*>(begin.value + kRangeBytes / 2);
  }
  Describe Query() {
    return
        [this](size_t i) { return device::QueryPointer(*run_.device().context(), PointerOf(i)); };
  }
  Describe Cached(PointerCache& cache) {
    return
        [this, &cache](size_t i) { return cache.Describe(*run_.device().context(), PointerOf(i)); };
  }

  // The time of a hit, and the same by that of a query, in turns.
  void Hit(const char* name, const Describe& describe) {
    std::vector<double> nanos;
    run_.Measure(RatioRow(name), [&]() -> Result<Measured> {
      LMDBIO_TRY_VOID(CheckFacts(describe));
      std::vector<double> ratios;
      for (int i = 0; i <= run_.options().sample_count; ++i) {
        LMDBIO_TRY(const double query, Time(Query()));
        LMDBIO_TRY(const double hit, Time(describe));
        if (i == 0) continue;
        ratios.push_back(hit / query);
        nanos.push_back(hit);
      }
      return Measured{.samples = ratios};
    });
    run_.Measure(name, [&]() -> Result<Measured> { return Measured{.samples = nanos}; });
  }

  static Status CheckFacts(const Describe& describe) {
    for (size_t i = 0; i < 2 * kRanges; ++i) {
      LMDBIO_TRY(const PointerFacts facts, describe(i));
      if (facts.kind == PointerKind::kDevice && facts.range.size_bytes >= kRangeBytes) continue;
      return Fail(ErrorCode::kInternal, fmt::format("pointer {} is described wrongly", i));
    }
    return {};
  }

  FigureRun& run_;
  std::vector<UnknownMemory> unknown_;
  std::optional<DeviceMemory> own_;
  PointerCache unchecked_{CacheCheck::kNone};
  PointerCache checked_{CacheCheck::kBufferId};
};

Status MeasurePointers(FigureRun& run) {
  PointerBench bench(run);
  LMDBIO_TRY_VOID(bench.Make());
  bench.Measure();
  return {};
}

}  // namespace

FigurePart PointerFigures() {
  FigurePart part = {.id = "D7",
                     .title = "what a pointer is, by the cache and by the driver",
                     .measure = &MeasurePointers};
  part.Plan(kQuery, "ns", NoBar());
  for (const char* const hit : {kOwnHit, kUncheckedHit}) {
    part.Plan(RatioRow(hit), "ratio", AtMost(0.1));
    part.Plan(hit, "ns", AtMost(40));
  }
  // This hit asks the driver for one attribute.
  part.Plan(RatioRow(kCheckedHit), "ratio", NoBar());
  part.Plan(kCheckedHit, "ns", NoBar());
  return part;
}

}  // namespace lmdbio::figures
