#include "lmdbio/feed/device_feed.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/base/thread_times.h"

namespace lmdbio::feed {
namespace {

using device::Device;
using device::DeviceStream;
using device::DriverTable;
using load::BatchStep;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The longest sleep in the loader while batches are held, which may keep the next one from coming.
constexpr auto kHoldingLimit = milliseconds(1);

Status CheckOptions(const FeedOptions& options) {
  if (options.depth >= 1 && options.depth <= kDepthMax) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("depth {} is out of range; expected 1 to {}", options.depth, kDepthMax));
}

double SecondsBetween(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

Result<std::unique_ptr<DeviceFeed>> DeviceFeed::Open(load::Loader& loader, int ordinal,
                                                     const FeedOptions& options,
                                                     const kernels::KernelImage& image) {
  LMDBIO_TRY_VOID(CheckOptions(options));
  LMDBIO_TRY(const DriverTable* const driver, device::SystemDriver());
  LMDBIO_TRY(std::shared_ptr<Device> gpu, Device::Open(ordinal, *driver));
  std::vector<std::string> notes;
  auto kernels = kernels::DeviceKernels::Load(*gpu, image);
  if (!kernels) {
    if (kernels.error().code() != ErrorCode::kUnsupported) return Fail(std::move(kernels).error());
    notes.push_back(fmt::format("{}; the host copies each batch to pinned memory first",
                                kernels.error().message()));
  }
  LMDBIO_TRY(auto copier,
             BatchCopier::Make(
                 gpu, kernels ? std::move(*kernels) : std::unique_ptr<kernels::DeviceKernels>()));
  LMDBIO_TRY_VOID(copier->UseWindow(loader.window()));
  std::unique_ptr<DeviceFeed> feed(
      new DeviceFeed(loader, std::move(gpu), options, std::move(copier)));
  feed->notes_ = std::move(notes);
  return feed;
}

// If the driver does not say that the copies are done, they may still read and write: their memory
// stays.
DeviceFeed::~DeviceFeed() {
  if (buffers_->is_forked()) {
    // Batches are returned in memory that this process shares with its parent.
    static_cast<void>(taken_.release());
    static_cast<void>(copier_.release());
    return;
  }
  if (copier_->AwaitAll() || copier_->AwaitAll()) {
    for (const Ready& each : ready_) buffers_->GiveBack(*each.buffer);
    return;
  }
  KeepForever(std::move(copier_));
  KeepShared(buffers_);
}

// A failure of the driver stays, because work may be under way whose end is unknown.
template <typename T>
Result<T> DeviceFeed::Keep(Result<T> result) {
  const bool is_lasting =
      !result && (copier_->is_broken() || result.error().code() == ErrorCode::kInternal);
  if (is_lasting && !broken_) broken_.emplace(result.error().Copy());
  return result;
}

Status DeviceFeed::CheckStream(device::StreamHandle stream) const {
  const DeviceStream borrowed = gpu_->Borrow(stream);
  LMDBIO_TRY(const bool is_captured, borrowed.IsCaptured());
  if (!is_captured) return {};
  return Fail(ErrorCode::kInvalidArgument,
              "the stream of a batch is being captured into a graph; end the capture first");
}

// Takes a batch, unless one was taken before, and enqueues its copy. Does not wait for the device.
Result<DeviceFeed::Begun> DeviceFeed::Begin(milliseconds limit) {
  LMDBIO_TRY(const bool can_begin, copier_->Settle());
  if (!taken_->is_held()) {
    LMDBIO_TRY(const BatchStep step, loader_.NextWithin(limit, *taken_));
    if (step == BatchStep::kEnd) return Begun::kEnd;
    if (step == BatchStep::kNothing) return Begun::kNoBatch;
  }
  if (!can_begin) return Begun::kNoMemory;
  RowLayout layout = LayoutOf(**taken_, options_.rows);
  LMDBIO_TRY(RowBuffer* const buffer, buffers_->Take(layout.size_bytes));
  if (buffer == nullptr) return Begun::kNoMemory;
  BatchFacts facts(**taken_);
  if (Status copied = copier_->Copy(*taken_, layout, *buffer); !copied) {
    if (!copier_->is_broken()) buffers_->GiveBack(*buffer);
    return Fail(std::move(copied).error());
  }
  ready_.push_back({std::move(facts), std::move(layout), buffer});
  return Begun::kCopy;
}

// The same, but waits for the loader, and for the device by looks.
Result<DeviceFeed::Begun> DeviceFeed::BeginWithin(milliseconds limit) {
  const Clock::time_point start = Clock::now();
  const Clock::time_point give_up = start + limit;
  Clock::time_point now = start;
  Result<Begun> begun = Begun::kNoBatch;
  LookPauses pauses;
  while (true) {
    const auto left = std::chrono::ceil<milliseconds>(give_up - now);
    begun = Begin(copier_->HoldsBatches() ? std::min(left, kHoldingLimit)
                                          : std::max(left, milliseconds(0)));
    const bool has_memory = begun && *begun != Begun::kNoMemory;
    const Clock::time_point looked = Clock::now();
    if (!begun || *begun == Begun::kCopy || *begun == Begun::kEnd || looked >= give_up) break;
    if (!has_memory) {
      pauses.Pause();
      counters_.buffer_wait_s += SecondsBetween(looked, Clock::now());
    }
    now = Clock::now();
  }
  counters_.wait_s += SecondsBetween(start, Clock::now());
  return begun;
}

// Errors come again when the program needs the batch. Those of the driver are kept for then.
void DeviceFeed::BeginAhead() {
  while (ready_.size() < options_.depth) {
    const Result<Begun> begun = Keep(Begin(milliseconds(0)));
    if (!begun || *begun != Begun::kCopy) return;
  }
}

Result<BatchStep> DeviceFeed::HandOut(device::StreamHandle stream, FedBatch& batch) {
  Ready& next = ready_.front();
  LMDBIO_TRY_VOID(buffers_->UseOn(*next.buffer, stream));
  buffers_->HandOut(*next.buffer);
  next_batch_ = next.facts.number() + 1;
  batch = FedBatch(std::move(next.facts), std::move(next.layout), *next.buffer, buffers_);
  ready_.pop_front();
  ++counters_.batch_count;
  return BatchStep::kBatch;
}

Result<BatchStep> DeviceFeed::NextWithin(milliseconds limit, device::StreamHandle stream,
                                         FedBatch& batch) {
  batch.Return();
  LMDBIO_TRY_VOID(gpu_->context()->CheckUsable());
  if (broken_) return Fail(broken_->Copy());
  LMDBIO_TRY_VOID(Keep(CheckStream(stream)));
  if (ready_.empty()) {
    LMDBIO_TRY(const Begun begun, Keep(BeginWithin(limit)));
    if (begun == Begun::kEnd) return BatchStep::kEnd;
    if (begun != Begun::kCopy) return BatchStep::kNothing;
  }
  LMDBIO_TRY(const BatchStep step, Keep(HandOut(stream, batch)));
  BeginAhead();
  return step;
}

Result<bool> DeviceFeed::Next(device::StreamHandle stream, FedBatch& batch) {
  LMDBIO_TRY(const BatchStep step, NextWithin(load::Loader::kNoLimit, stream, batch));
  return step == BatchStep::kBatch;
}

// Batches that the program has not got are dropped, and the window is not used any more.
Status DeviceFeed::Leave() {
  if (broken_) return Fail(broken_->Copy());
  LMDBIO_TRY_VOID(Keep(copier_->AwaitAll()));
  taken_->Return();
  for (const Ready& each : ready_) buffers_->GiveBack(*each.buffer);
  ready_.clear();
  copier_->LeaveWindow();
  return {};
}

// If another rank fails after this one has left the stream, the batches between the program and the
// loader are lost.
Status DeviceFeed::GoOn(const std::function<Status(const std::function<Status()>&)>& go_on) {
  LMDBIO_TRY_VOID(gpu_->context()->CheckUsable());
  bool has_left = false;
  Status gone = go_on([this, &has_left] {
    has_left = true;
    return Leave();
  });
  if (!has_left) return gone;
  if (!gone) {
    if (!broken_) broken_.emplace(gone.error().Copy());
    return gone;
  }
  next_batch_ = loader_.next_batch();
  return Keep(copier_->UseWindow(loader_.window()));
}

Status DeviceFeed::Restore(const std::string& state) {
  return GoOn([&](const std::function<Status()>& leave) { return loader_.Restore(state, leave); });
}

Status DeviceFeed::SetEpoch(uint64_t epoch) {
  return GoOn([&](const std::function<Status()>& leave) {
    return loader_.SetEpoch(epoch, next_batch_, leave);
  });
}

FeedCounters DeviceFeed::counters() const {
  FeedCounters counters = counters_;
  copier_->AddTo(counters);
  counters.grown_count = buffers_->grown_count();
  return counters;
}

std::string DeviceFeed::Describe() const {
  return fmt::format("GPU {} ({}); {} batches ahead; {}", gpu_->facts().ordinal, gpu_->facts().name,
                     options_.depth, copier_->Describe());
}

std::vector<std::string> DeviceFeed::TakeNotes() {
  std::vector<std::string> notes = std::exchange(notes_, {});
  for (const std::vector<std::string>& more : {copier_->TakeNotes(), buffers_->TakeNotes()}) {
    notes.insert(notes.end(), more.begin(), more.end());
  }
  return notes;
}

}  // namespace lmdbio::feed
