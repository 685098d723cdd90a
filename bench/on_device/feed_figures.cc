// D11: batches of a loader in the memory of a GPU, by a copy of pinned memory, by the loader alone,
// and by a loader of PyTorch.

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/device/supervise.h"
#include "bench/on_device/device_timer.h"
#include "bench/on_device/feed_files.h"
#include "bench/on_device/figure_parts.h"
#include "bench/on_device/roofs.h"
#include "lmdbio/base/align.h"
#include "lmdbio/feed/device_feed.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/kernels/kernel_plans.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::figures {
namespace {

using feed::DeviceFeed;
using feed::FedBatch;
using load::Loader;
using load::LoaderOptions;

struct FeedCase {
  const char* name;
  uint64_t record_bytes;
  uint64_t batch_records;
  double by_copy;  // the bar
};
constexpr FeedCase kCases[] = {{"196 KB", 196700, 64, 0.95}, {"3 KB", 3080, 2048, 0.85}};

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kPageHeaderBytes = 16;

constexpr uint64_t kFarBytes = 256 << 20;  // of batches that are gathered in turns

constexpr uint64_t kBatchesInEpoch = 32;
constexpr uint64_t kBatchesInMemory = 16;  // of a sample of batches that were read before
constexpr uint64_t kBatchesAhead = 24;     // that the loader reads for them
constexpr uint64_t kBatchesRead = 16;      // of a sample of batches that are read meanwhile
constexpr uint64_t kFewAhead = 4;          // that the loader reads for those
constexpr uint64_t kCheckedBatches = 4;
constexpr auto kPause = std::chrono::milliseconds(200);  // the loader reads its batches ahead
constexpr double kTorchSecondsMax = 60;
constexpr double kQuickTorchSecondsMax = 15;

constexpr const char* kByKernel =
    "one batch gathered by a kernel: bytes a second by those of a copy";
constexpr const char* kByKernelFar =
    "batches gathered by a kernel: bytes a second by those of a copy";
constexpr const char* kByCopy = "read before: bytes a second by those of a pinned copy";
constexpr const char* kByLoader = "cached file: bytes a second by those of the loader alone";
constexpr const char* kByDirectLoader = "direct reads: bytes a second by those of the loader alone";
constexpr const char* kProcessorTime = "cached file: processor time of Next";
constexpr const char* kByDefault =
    "cached file, default options: bytes a second by those of a pinned copy";
constexpr const char* kByTorch = "cached file: bytes a second by those of PyTorch";

std::string RowName(const FeedCase& one, const char* what) {
  return fmt::format("records of {}, {}", one.name, what);
}

FeedShape ShapeOf(const FeedCase& one, const FigureSettings& settings) {
  const uint64_t fitting = settings.size_bytes_max / one.record_bytes;
  return {.record_bytes = one.record_bytes,
          .batch_records = std::clamp<uint64_t>(fitting, 1, one.batch_records),
          .batches = kBatchesInEpoch};
}

double ThreadSeconds() {
  timespec used = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// Values lie in the window, where a kernel can read them.
LoaderOptions WindowReads(const FeedShape& shape, uint64_t batches_ahead) {
  LoaderOptions options;
  options.global_batch_size = shape.batch_records;
  options.allow_map = false;
  options.keep_bytes = -1;
  options.layout_cache = "off";
  options.prefetch_batches = batches_ahead;
  options.memory_budget_bytes =
      std::max<uint64_t>(64 << 20, 2 * batches_ahead * shape.batch_bytes());
  return options;
}

LoaderOptions DirectReads(const FeedShape& shape) {
  LoaderOptions options = WindowReads(shape, kFewAhead);
  options.cache = file::CachePolicy::kDirect;
  return options;
}

LoaderOptions DefaultReads(const FeedShape& shape) {
  LoaderOptions options;
  options.global_batch_size = shape.batch_records;
  options.layout_cache = "off";
  return options;
}

// A loader, and a feed of it.
class FedLoader {
 public:
  static Result<FedLoader> Open(FigureRun& run, const std::string& path,
                                const LoaderOptions& options) {
    FedLoader opened;
    LMDBIO_TRY(opened.loader_, Loader::Open(*opened.group_, path, options));
    LMDBIO_TRY(opened.feed_, DeviceFeed::Open(*opened.loader_, run.options().ordinal, {}));
    LMDBIO_TRY(device::DeviceStream stream, run.device().MakeStream());
    opened.stream_.emplace(std::move(stream));
    return opened;
  }

  // Takes batches, whose rows are then on the device.
  Status Take(uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      const double used_before = ThreadSeconds();
      LMDBIO_TRY(const bool is_there, feed_->Next(stream_->native(), batch_));
      next_seconds_ += ThreadSeconds() - used_before;
      if (!is_there) return Fail(ErrorCode::kInternal, "the stream of batches has ended");
    }
    return AwaitDone(*stream_);
  }

  // Takes batches and compares all of their rows with the values that were written.
  Status Check(device::Device& device, const FeedShape& shape) {
    LMDBIO_TRY(const PinnedSpace space, PinnedSpace::Make(device, shape.batch_bytes()));
    for (uint64_t b = 0; b < kCheckedBatches; ++b) {
      LMDBIO_TRY_VOID(Take(1));
      const feed::DeviceRows rows = batch_.rows();
      if (rows.rows.size_bytes != shape.batch_bytes()) {
        return Fail(ErrorCode::kInternal,
                    fmt::format("batch {} has {} bytes of rows", b, rows.rows.size_bytes));
      }
      LMDBIO_TRY_VOID(stream_->CopyOut(space.pinned(), 0, rows.rows.begin, rows.rows.size_bytes));
      LMDBIO_TRY_VOID(AwaitDone(*stream_));
      for (size_t i = 0; i < batch_.facts().record_count(); ++i) {
        const Bytes row = space.bytes().subspan(i * rows.row_bytes, rows.row_bytes);
        if (IsFeedValue(batch_.facts().key(i), row)) continue;
        return Fail(ErrorCode::kInternal, fmt::format("row {} of batch {} is wrong", i, b));
      }
    }
    return {};
  }

  std::string WayText() const {
    const feed::FeedCounters counters = feed_->counters();
    const double batches = std::max(1.0, static_cast<double>(counters.batch_count));
    return fmt::format(
        "{} of {} batches gathered by a kernel; Next waits {:.0f} us for a batch, {:.0f} of these "
        "for a buffer or a copy",
        counters.gathered_count, counters.gathered_count + counters.staged_count,
        counters.wait_s / batches * 1e6, counters.buffer_wait_s / batches * 1e6);
  }
  // Processor time of this thread in Next.
  double next_seconds() const { return next_seconds_; }
  static constexpr uint64_t kDepth = 2;  // FeedOptions::depth

 private:
  FedLoader() = default;

  std::unique_ptr<ranks::Group> group_ = ranks::SoloGroup();
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<DeviceFeed> feed_;
  std::optional<device::DeviceStream> stream_;
  FedBatch batch_;
  double next_seconds_ = 0;
};

// Takes batches of a loader without a device.
Status TakeFrom(Loader& loader, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    LMDBIO_TRY(const bool is_there, loader.Next());
    if (!is_there) return Fail(ErrorCode::kInternal, "the stream of batches has ended");
  }
  return {};
}

Result<double> SecondsOf(const Enqueue& work) {
  const double begin = SecondsNow();
  LMDBIO_TRY_VOID(work());
  return SecondsNow() - begin;
}

class FeedBench {
 public:
  FeedBench(FigureRun& run, const FeedCase& one, FeedFiles files)
      : run_(run), case_(one), shape_(ShapeOf(one, run.options())), files_(std::move(files)) {}

  void Measure(const FeedTools& tools) {
    Row(kByKernel, [&] { return ByKernel(1); });
    Row(kByKernelFar, [&] { return ByKernel(run_.options().AtMost(kFarBytes)); });
    Row(kByCopy, [&] { return ByCopy(WindowReads(shape_, kBatchesAhead)); });
    Row(kByLoader, [&] {
      return ByLoader(WindowReads(shape_, kFewAhead), [&](double rate, double processor_seconds) {
        rates_.push_back(rate);
        processor_.push_back(processor_seconds);
      });
    });
    Row(kProcessorTime, [&]() -> Result<Measured> { return Measured{.samples = processor_}; });
    Row(kByDirectLoader, [&] { return ByLoader(DirectReads(shape_), {}); });
    Row(kByDefault, [&] { return ByCopy(DefaultReads(shape_)); });
    MeasureTorch(tools);
  }

 private:
  void Row(const char* what, const std::function<Result<Measured>()>& measure) {
    run_.Measure(RowName(case_, what), measure);
  }

  double BytesOf(uint64_t batches) const {
    return static_cast<double>(batches) * static_cast<double>(shape_.batch_bytes());
  }

  // Of values that lie as in a database: each begins a page, behind its header.
  // window_bytes  of the batches that are gathered in turns
  Result<Measured> ByKernel(uint64_t window_bytes) {
    device::Device& device = run_.device();
    LMDBIO_TRY(const auto kernels, kernels::DeviceKernels::Load(device));
    const uint64_t record_bytes = case_.record_bytes;
    const uint64_t stride = AlignUp(kPageHeaderBytes + record_bytes, kPageBytes);
    const uint64_t batch_bytes = shape_.batch_records * stride;
    std::vector<std::vector<kernels::GatherValue>> batches(
        std::max<uint64_t>(window_bytes / batch_bytes, 1));
    for (uint64_t i = 0; i < batches.size() * shape_.batch_records; ++i) {
      batches[i / shape_.batch_records].push_back({i * stride + kPageHeaderBytes, record_bytes});
    }
    LMDBIO_TRY(const auto window, PinnedSpace::Make(device, batches.size() * batch_bytes));
    // Work that is enqueued in a row has a list each.
    const uint64_t list_bytes = kernels::GatherListBytes(batches[0], record_bytes);
    LMDBIO_TRY(const auto lists, PinnedSpace::Make(device, kRepeatsMax * list_bytes));
    LMDBIO_TRY(const auto rows, device.Allocate(shape_.batch_bytes()));
    LMDBIO_TRY(DeviceTimer timer, DeviceTimer::Make(device));
    uint64_t launches = 0;
    const Enqueue gather = [&] {
      const uint64_t launch = launches++;
      return kernels->Launch(timer.stream(), {.window = window.pinned(),
                                              .values = batches[launch % batches.size()],
                                              .rows = rows.span(),
                                              .row_bytes = record_bytes,
                                              .list = lists.pinned(),
                                              .list_offset = launch % kRepeatsMax * list_bytes});
    };
    for (uint64_t i = 0; i < window.bytes().size(); ++i) {
      window.bytes()[i] = static_cast<std::byte>(i * i % 251);
    }
    LMDBIO_TRY(const auto found, PinnedSpace::Make(device, shape_.batch_bytes()));
    LMDBIO_TRY_VOID(gather());
    LMDBIO_TRY_VOID(timer.stream().CopyOut(found.pinned(), 0, rows.begin(), shape_.batch_bytes()));
    LMDBIO_TRY_VOID(AwaitDone(timer.stream()));
    for (uint64_t i = 0; i < batches[0].size(); ++i) {
      const std::byte* const row = &found.bytes()[i * record_bytes];
      if (std::memcmp(row, &window.bytes()[batches[0][i].offset], record_bytes) == 0) continue;
      return Fail(ErrorCode::kInternal, fmt::format("row {} has wrong bytes", i));
    }
    LMDBIO_TRY(const auto copy, PinnedCopy::Make(device, shape_.batch_bytes()));
    const Enqueue copied = [&] { return copy.EnqueueOn(timer.stream()); };
    LMDBIO_TRY(const TurnTimes times, TimeInTurns(timer, run_.options(), copied, gather));
    return Measured{
        .samples = times.Ratios(),
        .note = fmt::format("{:.1f} us for {:.1f} MB out of {:.0f} MB",
                            tools::SpreadOf(times.second).median * 1e6, BytesOf(1) / 1e6,
                            static_cast<double>(window.bytes().size()) / 1e6)};
  }

  // Of batches that the loader has read before.
  Result<Measured> ByCopy(const LoaderOptions& options) {
    LMDBIO_TRY(FedLoader fed, FedLoader::Open(run_, files_.database(), options));
    LMDBIO_TRY_VOID(fed.Check(run_.device(), shape_));
    LMDBIO_TRY(DeviceTimer timer, DeviceTimer::Make(run_.device()));
    LMDBIO_TRY(const PinnedCopy copy,
               PinnedCopy::Make(run_.device(), kBatchesInMemory * shape_.batch_bytes()));
    const auto copied = [&]() -> Status {
      LMDBIO_TRY_VOID(copy.EnqueueOn(timer.stream()));
      return AwaitDone(timer.stream());
    };
    LMDBIO_TRY_VOID(copied());
    TurnTimes times;
    for (int i = 0; i < run_.options().sample_count; ++i) {
      std::this_thread::sleep_for(kPause);
      LMDBIO_TRY(const double copy_seconds, SecondsOf(copied));
      // These are on the device already.
      LMDBIO_TRY_VOID(fed.Take(FedLoader::kDepth));
      LMDBIO_TRY(const double feed_seconds, SecondsOf([&] { return fed.Take(kBatchesInMemory); }));
      times.first.push_back(copy_seconds);
      times.second.push_back(feed_seconds);
    }
    copy_rate_ = BytesOf(kBatchesInMemory) / tools::SpreadOf(times.first).median / 1e9;
    return Measured{.samples = times.Ratios(),
                    .note = fmt::format("copy {:.1f} GB/s; batches of {} records; {}", copy_rate_,
                                        shape_.batch_records, fed.WayText())};
  }

  // Of batches that the loader reads meanwhile.
  // tell  bytes a second, and processor time of Next in seconds a GB, of each sample; may be empty
  Result<Measured> ByLoader(const LoaderOptions& options,
                            const std::function<void(double, double)>& tell) {
    LMDBIO_TRY(FedLoader fed, FedLoader::Open(run_, files_.database(), options));
    LMDBIO_TRY_VOID(fed.Check(run_.device(), shape_));
    const auto group = ranks::SoloGroup();
    LMDBIO_TRY(const auto loader, Loader::Open(*group, files_.database(), options));
    TurnTimes times;
    for (int i = 0; i <= run_.options().sample_count; ++i) {
      LMDBIO_TRY(const double alone, SecondsOf([&] { return TakeFrom(*loader, kBatchesRead); }));
      const double used_before = fed.next_seconds();
      LMDBIO_TRY(const double fed_seconds, SecondsOf([&] { return fed.Take(kBatchesRead); }));
      if (i == 0) continue;  // the file is cached from here on, if it can be
      times.first.push_back(alone);
      times.second.push_back(fed_seconds);
      if (tell == nullptr) continue;
      const double used = fed.next_seconds() - used_before;
      tell(BytesOf(kBatchesRead) / fed_seconds, used / BytesOf(kBatchesRead) * 1e9);
    }
    const double rate = BytesOf(kBatchesRead) / tools::SpreadOf(times.first).median / 1e9;
    if (copy_rate_ > 0 && rate > copy_rate_) {
      return Measured{
          .samples = {},
          .left_out = fmt::format("the copy is the limit: the loader alone has {:.2f} "
                                  "GB/s, the copy {:.2f}; by the loader {:.3f}",
                                  rate, copy_rate_, tools::SpreadOf(times.Ratios()).median)};
    }
    return Measured{.samples = times.Ratios(),
                    .note = fmt::format("the loader alone {:.2f} GB/s; {}", rate, fed.WayText())};
  }

  void MeasureTorch(const FeedTools& tools) {
    const std::string row = RowName(case_, kByTorch);
    if (rates_.empty()) return run_.LeaveOut(row, "the rate of the feed is not known");
    if (::access(tools.script.c_str(), R_OK) != 0) {
      return run_.LeaveOut(row, fmt::format("{} is not there: name it with --rival", tools.script));
    }
    const double limit = std::min(
        run_.options().is_quick ? kQuickTorchSecondsMax : kTorchSecondsMax, run_.SecondsLeft());
    Result<probe::ChildProcess> python = probe::ChildProcess::Start(
        {tools.python, "-B", tools.script, "--device", std::to_string(run_.options().ordinal),
         "--values", files_.values(), "--record-bytes", std::to_string(shape_.record_bytes),
         "--batch", std::to_string(shape_.batch_records), "--samples",
         std::to_string(run_.options().sample_count), "--seconds", fmt::format("{:.1f}", limit)},
        {}, STDOUT_FILENO);
    if (!python) return run_.LeaveOut(row, python.error().message());
    probe::Supervise(std::span(&*python, 1), nullptr, limit + 10);
    const auto told = nlohmann::json::parse(python->text(), nullptr, false);
    if (told.is_object() && told.contains("left_out")) {
      return run_.LeaveOut(row, told["left_out"].get<std::string>());
    }
    run_.Measure(row, [&]() -> Result<Measured> {
      if (!told.is_object() || !told.contains("bytes_per_second")) {
        return Fail(ErrorCode::kInternal, fmt::format("{} {}: {}", tools.python, tools.script,
                                                      probe::EndWords(python->wait_status())));
      }
      const double theirs =
          lmdbio::tools::SpreadOf(told["bytes_per_second"].get<std::vector<double>>()).median;
      std::vector<double> ratios;
      for (const double rate : rates_) ratios.push_back(rate / theirs);
      return Measured{.samples = ratios,
                      .note = fmt::format("PyTorch {:.2f} GB/s with {} workers", theirs / 1e9,
                                          told["workers"].get<int>())};
    });
  }

  FigureRun& run_;
  const FeedCase& case_;
  FeedShape shape_;
  FeedFiles files_;
  double copy_rate_ = 0;           // of pinned memory, GB a second
  std::vector<double> processor_;  // s a GB
  std::vector<double> rates_;      // of the feed, bytes a second
};

Status MeasureFeed(FigureRun& run, const FeedTools& tools) {
  for (const FeedCase& one : kCases) {
    LMDBIO_TRY(FeedFiles files, FeedFiles::Write(tools.folder, ShapeOf(one, run.options())));
    FeedBench(run, one, std::move(files)).Measure(tools);
  }
  return {};
}

}  // namespace

FigurePart FeedFigures(const FeedTools& tools) {
  FigurePart part = {.id = "D11",
                     .title = "batches in the memory of the GPU",
                     .measure = [=](FigureRun& run) { return MeasureFeed(run, tools); }};
  for (const FeedCase& one : kCases) {
    part.Plan(RowName(one, kByKernel), "ratio", NoBar());
    part.Plan(RowName(one, kByKernelFar), "ratio", NoBar());
    part.Plan(RowName(one, kByCopy), "ratio", AtLeast(one.by_copy));
    part.Plan(RowName(one, kByLoader), "ratio", AtLeast(0.97));
    part.Plan(RowName(one, kProcessorTime), "s/GB", AtMost(0.05));
    part.Plan(RowName(one, kByDirectLoader), "ratio", AtLeast(0.97));
    part.Plan(RowName(one, kByDefault), "ratio", NoBar());
    part.Plan(RowName(one, kByTorch), "ratio", AtLeast(1));
  }
  return part;
}

}  // namespace lmdbio::figures
