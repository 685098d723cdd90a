// lmdbio/feed/device_feed.h - batches of a loader in the memory of a GPU.
//
//   LMDBIO_TRY(const auto feed, DeviceFeed::Open(*loader, 0, {}));
//   FedBatch batch;
//   while (true) {
//     LMDBIO_TRY(const bool found, feed->Next(stream, batch));
//     if (!found) break;
//     Train(stream, batch.rows().rows, batch.facts());
//   }
//
// The feed takes batches from the loader ahead of the program, and copies them in a stream of its
// own. A batch of the loader is held until its copy is done, and never longer than that.
//
// Source: docs/device_feed.md.
#ifndef LMDBIO_FEED_DEVICE_FEED_H_
#define LMDBIO_FEED_DEVICE_FEED_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/feed/batch_copier.h"
#include "lmdbio/feed/fed_batch.h"
#include "lmdbio/feed/feed_counters.h"
#include "lmdbio/feed/row_buffers.h"
#include "lmdbio/feed/row_layout.h"
#include "lmdbio/kernels/kernel_image.h"
#include "lmdbio/load/loader/loader.h"

namespace lmdbio::feed {

struct FeedOptions {
  RowOptions rows = {};
  // Batches under way ahead of the program [1 to kDepthMax]. The loader's memory bounds them, too.
  uint32_t depth = 2;
};
inline constexpr uint32_t kDepthMax = 64;

// No call of the driver waits for the device, except where a buffer or pinned memory is made.
//
// Threads: one at a time. The program takes no batches from the loader meanwhile.
class DeviceFeed {
 public:
  // Opens the driver and the GPU, loads the kernels, and pins the loader's window.
  // loader   outlives the feed; its next batch is the feed's first
  // ordinal  [>= 0] of the GPU
  // Errors: kInvalidArgument  options are out of range
  //         and as device::SystemDriver, device::Device::Open and kernels::DeviceKernels::Load
  static Result<std::unique_ptr<DeviceFeed>> Open(
      load::Loader& loader, int ordinal, const FeedOptions& options,
      const kernels::KernelImage& image = kernels::BuiltInKernels());

  // Waits until copies that are under way are done, and lets their batches go. The batches that the
  // program has stay with it; those that it has not got are lost.
  ~DeviceFeed();
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  // Returns `batch`, and moves the next batch of the stream into it; false after the last one. Work
  // that follows on `stream` sees the rows. Sleeps until the loader has the batch, and until the
  // program's work has left a buffer.
  // stream  of the program, on this GPU; null: the default stream
  // Errors: kInvalidArgument    the stream is captured, of another GPU, or was destroyed; the next
  //                             call may give another one
  //         kResourceExhausted  the GPU or the host has no memory for the batch; the next call
  //                             tries again
  //         kUnsupported        this process is a child of fork()
  //         kInternal           the driver fails; every later call returns the same error
  //         as Loader::Next, after the batches before
  Result<bool> Next(device::StreamHandle stream, FedBatch& batch);
  // The same with a time limit. After kNothing there is no batch, and the next call waits for the
  // same one again.
  // limit  0: does not sleep; Loader::kNoLimit: as Next
  // Errors: as Next
  Result<load::BatchStep> NextWithin(std::chrono::milliseconds limit, device::StreamHandle stream,
                                     FedBatch& batch);

  // As Loader::Save, but only batches that the program has got count as delivered.
  std::string Save() const { return loader_.SaveBefore(next_batch_); }
  // As those of the loader. Collective, too. Batches that the program has stay with it.
  // Errors: as Loader::Restore; kInternal  the driver fails
  Status Restore(const std::string& state);
  Status SetEpoch(uint64_t epoch);

  FeedCounters counters() const;
  // The GPU, the depth, and the way of the values, in a line.
  std::string Describe() const;
  // One line for each compromise, each returned once.
  std::vector<std::string> TakeNotes();

 private:
  // A batch whose copy was enqueued.
  struct Ready {
    BatchFacts facts;
    RowLayout layout;
    RowBuffer* buffer = nullptr;
  };
  enum class Begun { kCopy, kEnd, kNoBatch, kNoMemory };

  DeviceFeed(load::Loader& loader, std::shared_ptr<device::Device> gpu, const FeedOptions& options,
             std::unique_ptr<BatchCopier> copier)
      : loader_(loader),
        options_(options),
        gpu_(std::move(gpu)),
        buffers_(std::make_shared<RowBuffers>(gpu_, options.depth)),
        copier_(std::move(copier)),
        next_batch_(loader.next_batch()) {}

  Status CheckStream(device::StreamHandle stream) const;
  Result<Begun> Begin(std::chrono::milliseconds limit);
  Result<Begun> BeginWithin(std::chrono::milliseconds limit);
  void BeginAhead();
  Result<load::BatchStep> HandOut(device::StreamHandle stream, FedBatch& batch);
  template <typename T>
  Result<T> Keep(Result<T> result);
  Status Leave();
  Status GoOn(const std::function<Status(const std::function<Status()>&)>& go_on);

  load::Loader& loader_;
  const FeedOptions options_;
  const std::shared_ptr<device::Device> gpu_;
  const std::shared_ptr<RowBuffers> buffers_;
  std::unique_ptr<BatchCopier> copier_;
  // From the loader, if no copy was enqueued yet. Not null.
  std::unique_ptr<load::HeldBatch> taken_ = std::make_unique<load::HeldBatch>();
  std::deque<Ready> ready_;  // in order
  uint64_t next_batch_;      // of the program
  std::optional<Error> broken_;
  std::vector<std::string> notes_;
  FeedCounters counters_;
};

}  // namespace lmdbio::feed
#endif  // LMDBIO_FEED_DEVICE_FEED_H_
