#include "lmdbio/feed/row_buffers.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/kept_memory.h"

namespace lmdbio::feed {
namespace {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceStream;
using Clock = std::chrono::steady_clock;

// Sizes are multiples of this, so that batches of nearly the same size need no new memory.
constexpr uint64_t kSizeStep = 64 << 10;

// Between two looks at the last uses.
constexpr auto kEndPause = std::chrono::microseconds(50);

}  // namespace

RowBuffers::~RowBuffers() {
  if (is_forked()) {
    for (auto& buffer : buffers_) static_cast<void>(buffer.release());
    return;
  }
  const Clock::time_point until = Clock::now() + kEndLimit;
  for (auto& buffer : buffers_) {
    if (buffer->state_ != RowBuffer::BufferState::kReturned) continue;
    Result<bool> is_done = AreUsesDone(*buffer);
    while (is_done && !*is_done && Clock::now() < until) {
      std::this_thread::sleep_for(kEndPause);
      is_done = AreUsesDone(*buffer);
    }
    if (!is_done || !*is_done) KeepForever(std::move(buffer));
  }
}

Result<bool> RowBuffers::AreUsesDone(RowBuffer& buffer) const {
  for (RowBuffer::Use& use : buffer.uses_) {
    if (!use.is_open) continue;
    LMDBIO_TRY(const bool is_done, use.event.IsDone());
    if (!is_done) return false;
    use.is_open = false;
  }
  return true;
}

// The first one that is large enough; else the first one.
Result<RowBuffer*> RowBuffers::FindIdle(uint64_t size_bytes) {
  RowBuffer* found = nullptr;
  for (const auto& buffer : buffers_) {
    if (buffer->state_ == RowBuffer::BufferState::kReturned) {
      LMDBIO_TRY(const bool is_done, AreUsesDone(*buffer));
      if (is_done) buffer->state_ = RowBuffer::BufferState::kIdle;
    }
    if (buffer->state_ != RowBuffer::BufferState::kIdle) continue;
    if (buffer->span().size_bytes >= size_bytes) return buffer.get();
    if (found == nullptr) found = buffer.get();
  }
  return found;
}

Result<RowBuffer*> RowBuffers::Take(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  largest_bytes_ = std::max(largest_bytes_, size_bytes);
  LMDBIO_TRY(RowBuffer * buffer, FindIdle(size_bytes));
  if (buffer == nullptr && buffers_.size() < depth_ + std::max<size_t>(with_program_, 1)) {
    LMDBIO_TRY(DeviceEvent copied, gpu_->MakeEvent(DeviceEventKind::kLocal));
    buffers_.emplace_back(new RowBuffer(std::move(copied)));
    buffer = buffers_.back().get();
  }
  if (buffer == nullptr) return nullptr;
  if (buffer->span().size_bytes < size_bytes) LMDBIO_TRY_VOID(Enlarge(*buffer, size_bytes));
  buffer->state_ = RowBuffer::BufferState::kFilled;
  return buffer;
}

// All buffers grow to the largest batch so far, so that a stream whose sizes vary soon needs no new
// memory.
Status RowBuffers::Enlarge(RowBuffer& buffer, uint64_t size_bytes) {
  const uint64_t whole_bytes = AlignUp(std::max(size_bytes, largest_bytes_), kSizeStep);
  buffer.memory_.reset();
  Result<device::DeviceMemory> memory = gpu_->Allocate(whole_bytes);
  if (!memory) {
    const Error& why = memory.error();
    return Fail(why.code(), fmt::format("{} bytes for the rows of a batch: {}; the program has {} "
                                        "batches, and at most {} more are under way",
                                        whole_bytes, why.message(), with_program_, depth_));
  }
  buffer.memory_.emplace(*std::move(memory));
  ++grown_count_;
  return {};
}

void RowBuffers::GiveBack(RowBuffer& buffer) {
  const std::lock_guard lock(mutex_);
  buffer.state_ = RowBuffer::BufferState::kIdle;
}

void RowBuffers::HandOut(RowBuffer& buffer) {
  const std::lock_guard lock(mutex_);
  buffer.state_ = RowBuffer::BufferState::kWithProgram;
  ++with_program_;
}

Status RowBuffers::UseOn(RowBuffer& buffer, device::StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  DeviceStream borrowed = gpu_->Borrow(stream);
  RowBuffer::Use* free_use = nullptr;
  for (RowBuffer::Use& use : buffer.uses_) {
    if (use.is_open && use.stream == stream) return borrowed.Await(buffer.copied_);
    if (!use.is_open) free_use = &use;
  }
  if (free_use == nullptr) {
    LMDBIO_TRY(DeviceEvent event, gpu_->MakeEvent(DeviceEventKind::kLocal));
    buffer.uses_.push_back({nullptr, std::move(event)});
    free_use = &buffer.uses_.back();
  }
  LMDBIO_TRY_VOID(borrowed.Await(buffer.copied_));
  free_use->stream = stream;
  free_use->is_open = true;
  return {};
}

void RowBuffers::Return(RowBuffer& buffer) {
  if (is_forked()) return;
  const std::lock_guard lock(mutex_);
  --with_program_;
  for (RowBuffer::Use& use : buffer.uses_) {
    if (!use.is_open) continue;
    DeviceStream stream = gpu_->Borrow(use.stream);
    if (const Status recorded = stream.Record(use.event); !recorded) {
      return Lose(buffer, recorded.error());
    }
  }
  buffer.state_ = RowBuffer::BufferState::kReturned;
}

void RowBuffers::Lose(RowBuffer& buffer, const Error& why) {
  notes_.push_back(fmt::format(
      "rows of {} bytes stay on the GPU until the process ends, because the end of their use is "
      "unknown: {}",
      buffer.span().size_bytes, why.message()));
  const auto lost = std::find_if(buffers_.begin(), buffers_.end(),
                                 [&buffer](const auto& each) { return each.get() == &buffer; });
  KeepForever(std::move(*lost));
  buffers_.erase(lost);
}

uint64_t RowBuffers::grown_count() const {
  const std::lock_guard lock(mutex_);
  return grown_count_;
}

std::vector<std::string> RowBuffers::TakeNotes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

}  // namespace lmdbio::feed
