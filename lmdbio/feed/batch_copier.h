// lmdbio/feed/batch_copier.h - copies batches of a loader to a device.
//
//   gathered  one launch for each field reads the values out of the window, which is pinned. The
//             batch is held until the copy is done
//   staged    the host writes the rows to pinned memory, and one copy follows. For values that lie
//             elsewhere, and without kernels
//
// Source: docs/device_feed.md "Two ways".
#ifndef LMDBIO_FEED_BATCH_COPIER_H_
#define LMDBIO_FEED_BATCH_COPIER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"
#include "lmdbio/device/device.h"
#include "lmdbio/feed/feed_counters.h"
#include "lmdbio/feed/pinned_memory.h"
#include "lmdbio/feed/row_buffers.h"
#include "lmdbio/feed/row_layout.h"
#include "lmdbio/kernels/device_kernels.h"
#include "lmdbio/load/loader/batch.h"

namespace lmdbio::feed {

// Threads: one at a time.
class BatchCopier {
 public:
  // Copies that are under way at the same time.
  static constexpr size_t kSlots = 2;

  // kernels  null: all batches are staged
  // Errors: as PrimaryContext::Run
  static Result<std::unique_ptr<BatchCopier>> Make(std::shared_ptr<device::Device> gpu,
                                                   std::unique_ptr<kernels::DeviceKernels> kernels);

  // Pins the window. If it is empty, or the driver refuses, all batches are staged, with a note.
  // Waits for the device.
  // Errors: the context is lost, as PrimaryContext::Run
  // Lifetime: the window stays mapped until LeaveWindow
  Status UseWindow(MutableBytes window);
  // Requires: IsIdle
  void LeaveWindow();

  // Lets the batches go whose copies are done. Does not wait.
  // Returns: whether a copy can begin
  // Errors: as PrimaryContext::Run
  Result<bool> Settle();
  // Whether batches are held for copies that are not done.
  bool HoldsBatches() const;

  // Enqueues the copy of a batch, and takes it.
  // batch  of layout `layout`; still held after an error, unless is_broken
  // to     [>= layout.size_bytes] idle
  // Requires: Settle has returned true
  // Errors: kResourceExhausted  no memory of the host, or it cannot be pinned; nothing is enqueued
  //         and as PrimaryContext::Run
  Status Copy(load::HeldBatch& batch, const RowLayout& layout, RowBuffer& to);
  // Whether a copy was enqueued whose end is unknown, because the driver has failed.
  bool is_broken() const { return is_broken_; }

  // Waits until all copies are done, and lets their batches go. They wait for nothing but their own
  // time.
  // Errors: as PrimaryContext::Run
  Status AwaitAll();

  void AddTo(FeedCounters& counters) const;
  // "gathered out of N pinned bytes", or "staged".
  std::string Describe() const;
  std::vector<std::string> TakeNotes() { return std::exchange(notes_, {}); }

 private:
  // A copy under way.
  struct Slot {
    PinnedMemory memory;       // the lists of a gather and the offsets, or the rows themselves
    device::DeviceEvent done;  // the memory is free again
    load::HeldBatch held;      // whose values are read
    bool is_busy = false;
  };

  BatchCopier(std::shared_ptr<device::Device> gpu, std::unique_ptr<kernels::DeviceKernels> kernels,
              device::DeviceStream stream)
      : gpu_(std::move(gpu)), kernels_(std::move(kernels)), stream_(std::move(stream)) {}

  bool IsInWindow(const load::Batch& batch) const;
  void NoteStaged(const std::string& why);
  Status Gather(const load::Batch& batch, const RowLayout& layout, RowBuffer& to, Slot& slot);
  Status Stage(const load::Batch& batch, const RowLayout& layout, RowBuffer& to, Slot& slot);

  const std::shared_ptr<device::Device> gpu_;
  const std::unique_ptr<kernels::DeviceKernels> kernels_;
  device::DeviceStream stream_;
  std::optional<device::PinnedBytes> window_;
  std::vector<Slot> slots_;
  bool is_broken_ = false;
  bool has_noted_ = false;  // that batches are staged
  std::vector<std::string> notes_;
  FeedCounters counters_;
};

}  // namespace lmdbio::feed
#endif  // LMDBIO_FEED_BATCH_COPIER_H_
