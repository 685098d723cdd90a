// lmdbio/feed/row_buffers.h - memory of a device that the batches of a feed take turns in.
//
// A buffer is filled again only when the work of the program that uses it is known to be done. So a
// copy into it never waits on the device for the program, and is done within its own time.
//
// Source: docs/device_feed.md "Buffers".
#ifndef LMDBIO_FEED_ROW_BUFFERS_H_
#define LMDBIO_FEED_ROW_BUFFERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"

namespace lmdbio::feed {

// Memory for one batch. RowBuffers has its contract.
class RowBuffer {
 public:
  device::DeviceSpan span() const { return memory_ ? memory_->span() : device::DeviceSpan(); }
  // Recorded behind the copy of the batch that it has.
  device::DeviceEvent& copied() { return copied_; }

 private:
  friend class RowBuffers;

  enum class BufferState { kIdle, kFilled, kWithProgram, kReturned };
  // A stream of the program on which work uses the memory.
  struct Use {
    device::StreamHandle stream = nullptr;
    device::DeviceEvent event;  // recorded when the batch is returned
    bool is_open = false;       // of the batch at hand
  };

  explicit RowBuffer(device::DeviceEvent copied) : copied_(std::move(copied)) {}

  std::optional<device::DeviceMemory> memory_;
  device::DeviceEvent copied_;
  BufferState state_ = BufferState::kIdle;
  std::vector<Use> uses_;
};

// Threads: any, except Take, which one thread at a time calls.
class RowBuffers {
 public:
  // The longest wait of the destructor for work of the program.
  static constexpr auto kEndLimit = std::chrono::milliseconds(500);

  // depth  batches besides those that the program has [> 0]
  RowBuffers(std::shared_ptr<device::Device> gpu, uint32_t depth)
      : gpu_(std::move(gpu)), depth_(depth) {}
  // Memory that the program may still use lives until the process ends.
  ~RowBuffers();
  RowBuffers(const RowBuffers&) = delete;
  RowBuffers& operator=(const RowBuffers&) = delete;

  // A buffer that nothing uses, with at least this size. Makes or enlarges one if there are fewer
  // than the depth and the batches of the program need; this waits for the device. Null: all of
  // them are in use.
  // Errors: kResourceExhausted  the device is out of memory; says how many batches the program has
  //         and as PrimaryContext::Run
  Result<RowBuffer*> Take(uint64_t size_bytes);
  // A buffer that was taken has no batch.
  void GiveBack(RowBuffer& buffer);

  // The program gets the batch.
  void HandOut(RowBuffer& buffer);
  // Work that follows on `stream` sees the rows, and counts as a use of them.
  // Errors: kInvalidArgument  the stream is of another GPU, or was destroyed
  //         and as PrimaryContext::Run
  Status UseOn(RowBuffer& buffer, device::StreamHandle stream);
  // The program enqueues no further work that uses the batch. If the driver does not say when that
  // work is done, the memory is never used again.
  void Return(RowBuffer& buffer);

  uint64_t grown_count() const;
  std::vector<std::string> TakeNotes();
  bool is_forked() const { return gpu_->context()->is_forked(); }

 private:
  Result<bool> AreUsesDone(RowBuffer& buffer) const;
  Result<RowBuffer*> FindIdle(uint64_t size_bytes);
  Status Enlarge(RowBuffer& buffer, uint64_t size_bytes);
  void Lose(RowBuffer& buffer, const Error& why);

  const std::shared_ptr<device::Device> gpu_;
  const uint32_t depth_;
  mutable std::mutex mutex_;  // of all below
  std::vector<std::unique_ptr<RowBuffer>> buffers_;
  size_t with_program_ = 0;
  uint64_t largest_bytes_ = 0;
  uint64_t grown_count_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace lmdbio::feed
#endif  // LMDBIO_FEED_ROW_BUFFERS_H_
