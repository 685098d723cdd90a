#include "bench/device_jobs/part_plan.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "bench/spread.h"

namespace lmdbio::figures {
namespace {

constexpr double kQuickRowSeconds = 0.5;

std::vector<uint64_t> Bounded(const FigureSettings& options, std::vector<uint64_t> sizes) {
  for (uint64_t& size : sizes) size = options.AtMost(size);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes;
}

}  // namespace

JobSpec JobOf(const FigureSettings& options, std::string kind) {
  JobSpec spec;
  spec.kind = std::move(kind);
  spec.ordinal = options.ordinal;
  spec.sample_count = options.sample_count;
  spec.sample_seconds = options.sample_seconds;
  if (options.is_quick) spec.row_seconds = kQuickRowSeconds;
  return spec;
}

std::vector<uint64_t> PlacedSizes(const FigureSettings& options) {
  if (options.is_quick) return {8, 1 << 20, 64 << 20, 512 << 20};
  return {8, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20, 512 << 20};
}

std::vector<uint64_t> RivalSizes(const FigureSettings& options) {
  if (options.is_quick) return {8, 1 << 20, 64 << 20};
  return {8, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20};
}

JobSpec ReduceJob(const FigureSettings& options, const std::string& variant, int rank_count) {
  JobSpec spec = JobOf(options, "reduce");
  spec.variant = variant;
  spec.rank_count = rank_count;
  spec.sizes = Bounded(options, variant == "staged" ? RivalSizes(options) : PlacedSizes(options));
  return spec;
}

JobSpec SerialJob(const FigureSettings& options, int rank_count) {
  JobSpec spec = JobOf(options, "serial");
  spec.rank_count = rank_count;
  spec.sizes = Bounded(options, RivalSizes(options));
  return spec;
}

Result<std::vector<double>> TimesOf(FigureRun& run, JobScene& scene, const JobSpec& spec,
                                    const std::string& what, uint64_t size_bytes) {
  return scene.runs.Samples(spec, MeasureOf(what, run.options().AtMost(size_bytes)),
                            std::min(kJobSecondsMax, run.SecondsLeft()));
}

Result<Measured> RatioOf(FigureRun& run, Result<std::vector<double>> times,
                         Result<std::vector<double>> others, uint64_t size_bytes) {
  if (!times) return Fail(std::move(times).error());
  if (!others) return Fail(std::move(others).error());
  const double mine = tools::SpreadOf(*times).median;
  const double other = tools::SpreadOf(*others).median;
  Measured figure;
  for (const double time : *times) figure.samples.push_back(time / other);
  figure.note = fmt::format("{:.1f} us by {:.1f} us{}", mine, other, SizeNote(run, size_bytes));
  return figure;
}

std::string RankWords(int rank_count) { return fmt::format("P = {}", rank_count); }

std::string SizeNote(const FigureRun& run, uint64_t size_bytes) {
  const uint64_t bounded = run.options().AtMost(size_bytes);
  return bounded == size_bytes ? "" : fmt::format("; {} bytes by --size-max", bounded);
}

}  // namespace lmdbio::figures
