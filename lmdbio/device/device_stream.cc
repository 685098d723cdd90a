#include "lmdbio/device/device_stream.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace lmdbio::device {
namespace {

Status CheckRange(const PinnedBytes& memory, uint64_t offset, uint64_t size_bytes) {
  if (memory.span().Holds(offset, size_bytes)) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("a copy of {} bytes at offset {} of {} pinned bytes", size_bytes, offset,
                          memory.span().size_bytes));
}

Status CheckMark(uint64_t value, const void* function) {
  if (value >= kMarkPoison) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("a mark of {}: marks stay below 2^62", value));
  }
  if (function != nullptr) return {};
  return Fail(ErrorCode::kUnsupported, "this driver has no memory operations of streams");
}

}  // namespace

Result<DeviceStream> DeviceStream::Make(std::shared_ptr<PrimaryContext> context) {
  auto owned = std::make_unique<OwnedStream>(std::move(context));
  int least = 0;
  int greatest = 0;
  LMDBIO_TRY_VOID(owned->context->Run("cuCtxGetStreamPriorityRange", [&](const auto& driver) {
    return driver.CtxGetStreamPriorityRange(&least, &greatest);
  }));
  LMDBIO_TRY_VOID(owned->context->Run("cuStreamCreateWithPriority", [&](const auto& driver) {
    return driver.StreamCreateWithPriority(&owned->handle, kStreamNonBlocking, greatest);
  }));
  return DeviceStream(std::move(owned));
}

DeviceStream DeviceStream::Borrow(std::shared_ptr<PrimaryContext> context, StreamHandle handle) {
  auto owned = std::make_unique<OwnedStream>(std::move(context));
  owned->handle = handle;
  owned->is_borrowed = true;
  return DeviceStream(std::move(owned));
}

// The driver finishes the work of a stream that is destroyed.
DeviceStream::OwnedStream::~OwnedStream() {
  if (is_borrowed || handle == nullptr) return;
  context->Release("cuStreamDestroy",
                   [this](const DriverTable& driver) { return driver.StreamDestroy(handle); });
}

Status DeviceStream::Copy(DeviceAddress to, DeviceAddress from, uint64_t size_bytes) {
  if (size_bytes == 0) return {};
  return owned_->context->Run("cuMemcpyDtoDAsync", [&](const DriverTable& driver) {
    return driver.MemcpyDtoDAsync(to.value, from.value, size_bytes, owned_->handle);
  });
}

Status DeviceStream::CopyIn(DeviceAddress to, const PinnedBytes& from, uint64_t offset,
                            uint64_t size_bytes) {
  LMDBIO_TRY_VOID(CheckRange(from, offset, size_bytes));
  if (size_bytes == 0) return {};
  return owned_->context->Run("cuMemcpyHtoDAsync", [&](const DriverTable& driver) {
    return driver.MemcpyHtoDAsync(to.value, from.bytes().data() + offset, size_bytes,
                                  owned_->handle);
  });
}

Status DeviceStream::CopyOut(const PinnedBytes& to, uint64_t offset, DeviceAddress from,
                             uint64_t size_bytes) {
  LMDBIO_TRY_VOID(CheckRange(to, offset, size_bytes));
  if (size_bytes == 0) return {};
  return owned_->context->Run("cuMemcpyDtoHAsync", [&](const DriverTable& driver) {
    return driver.MemcpyDtoHAsync(to.bytes().data() + offset, from.value, size_bytes,
                                  owned_->handle);
  });
}

Status DeviceStream::Fill(DeviceAddress to, std::byte value, uint64_t size_bytes) {
  if (size_bytes == 0) return {};
  return owned_->context->Run("cuMemsetD8Async", [&](const DriverTable& driver) {
    return driver.MemsetD8Async(to.value, static_cast<unsigned char>(value), size_bytes,
                                owned_->handle);
  });
}

// The driver does not write to the parameter, but its array of pointers is not const.
Status DeviceStream::Launch(FunctionHandle function, const LaunchShape& shape,
                            const void* parameter) {
  void* parameters[] = {const_cast<void*>(parameter)};
  return owned_->context->Run("cuLaunchKernel", [&](const DriverTable& driver) {
    return driver.LaunchKernel(function, shape.blocks, 1, 1, shape.threads, 1, 1, 0, owned_->handle,
                               parameters, nullptr);
  });
}

// A stream of the program may be of another device, or destroyed. Then the driver knows no such
// stream here, and the program has made the mistake.
template <typename Call>
Status DeviceStream::RunOnHandle(std::string_view what, Call&& call) const {
  LMDBIO_TRY(const DriverCode code, owned_->context->Try(what, std::forward<Call>(call)));
  if (code == driver_code::kSuccess) return {};
  const Error error = owned_->context->ErrorOf(code, what);
  if (code != driver_code::kInvalidHandle) return Fail(error.Copy());
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: the stream is not one of GPU {}", error.message(),
                          owned_->context->ordinal()));
}

Status DeviceStream::Record(DeviceEvent& event) {
  LMDBIO_TRY_VOID(RunOnHandle("cuEventRecord", [&](const DriverTable& driver) {
    return driver.EventRecord(event.native(), owned_->handle);
  }));
  event.is_recorded_ = true;
  return {};
}

Status DeviceStream::Await(const DeviceEvent& event) {
  if (!event.is_recorded() && !event.is_of_other_process()) {
    return Fail(ErrorCode::kInvalidArgument,
                "a stream is to wait for an event that was never recorded");
  }
  return RunOnHandle("cuStreamWaitEvent", [&](const DriverTable& driver) {
    return driver.StreamWaitEvent(owned_->handle, event.native(), 0);
  });
}

Status DeviceStream::Raise(const DeviceMark& mark, uint64_t value) {
  const auto function = owned_->context->driver().StreamWriteValue64;
  LMDBIO_TRY_VOID(CheckMark(value, reinterpret_cast<const void*>(function)));
  return owned_->context->Run("cuStreamWriteValue64", [&](const DriverTable&) {
    return function(owned_->handle, mark.address().value, value, 0);
  });
}

Status DeviceStream::AwaitAll(std::span<const MarkWait> waits) {
  const auto function = owned_->context->driver().StreamBatchMemOp;
  for (const MarkWait& wait : waits) {
    LMDBIO_TRY_VOID(CheckMark(wait.value, reinterpret_cast<const void*>(function)));
  }
  std::array<MemoryOperation, kMemoryOperationsMax> operations;
  while (!waits.empty()) {
    const size_t count = std::min(waits.size(), operations.size());
    for (size_t i = 0; i < count; ++i) {
      operations[i] = {.type = MemoryOperationType::kWait64,
                       .address = waits[i].mark.address().value,
                       .value = waits[i].value,
                       .flags = kWaitUntilAtLeast};
    }
    LMDBIO_TRY_VOID(owned_->context->Run("cuStreamBatchMemOp", [&](const DriverTable&) {
      return function(owned_->handle, static_cast<unsigned>(count), operations.data(), 0);
    }));
    waits = waits.subspan(count);
  }
  return {};
}

// The default stream cannot be asked while the program captures another one that waits for it.
Result<bool> DeviceStream::IsCaptured() const {
  CaptureStatus status = CaptureStatus::kNone;
  bool is_captured_implicitly = false;
  LMDBIO_TRY_VOID(RunOnHandle("cuStreamIsCapturing", [&](const DriverTable& driver) {
    const DriverCode code = driver.StreamIsCapturing(owned_->handle, &status);
    is_captured_implicitly = code == driver_code::kCapturesImplicitly;
    return is_captured_implicitly ? driver_code::kSuccess : code;
  }));
  return is_captured_implicitly || status != CaptureStatus::kNone;
}

Result<bool> DeviceStream::IsDone() const {
  LMDBIO_TRY(const DriverCode code, owned_->context->Try("cuStreamQuery", [&](auto& driver) {
    return driver.StreamQuery(owned_->handle);
  }));
  if (code == driver_code::kSuccess) return true;
  if (code == driver_code::kNotReady) return false;
  return Fail(owned_->context->ErrorOf(code, "cuStreamQuery"));
}

Status DeviceStream::Synchronize() {
  return owned_->context->Run("cuStreamSynchronize", [&](const DriverTable& driver) {
    return driver.StreamSynchronize(owned_->handle);
  });
}

}  // namespace lmdbio::device
