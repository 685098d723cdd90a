// tests/sync/on_device/tensors_on_device.h - the memory of tensors on a device of the stand-in
// (tests/emulated_gpu), and streams of a program that use it.
#ifndef LMDBIO_TESTS_SYNC_ON_DEVICE_TENSORS_ON_DEVICE_H_
#define LMDBIO_TESTS_SYNC_ON_DEVICE_TENSORS_ON_DEVICE_H_

#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/device/emulated_device.h"

namespace lmdbio::test {

template <typename T>
std::string BytesOfAll(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> ValuesOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// A program with a stream of its own on a GPU. Not for several threads at once.
class ProgramOnDevice {
 public:
  explicit ProgramOnDevice(std::shared_ptr<device::Device> opened)
      : gpu_(std::move(opened)), stream_(Good(gpu_->MakeStream())) {}

  device::DeviceMemory Allocate(uint64_t size_bytes) { return Good(gpu_->Allocate(size_bytes)); }

  // Enqueues a copy of these bytes to the device.
  void WriteLater(device::DeviceAddress to, const std::string& bytes) {
    if (bytes.empty()) return;
    const device::PinnedBytes& pinned = Pin(bytes.size());
    Write(pinned, bytes);
    Must(stream_.CopyIn(to, pinned, 0, bytes.size()));
  }
  // The bytes that work on this stream sees.
  std::string ReadNow(device::DeviceAddress from, size_t size_bytes) {
    if (size_bytes == 0) return {};
    const device::PinnedBytes& pinned = Pin(size_bytes);
    Must(stream_.CopyOut(pinned, 0, from, size_bytes));
    Must(stream_.Synchronize());
    return Read(pinned, size_bytes);
  }

  device::DeviceStream& stream() { return stream_; }
  device::Device& gpu() { return *gpu_; }

 private:
  const device::PinnedBytes& Pin(size_t size_bytes) {
    const SharedBytes& host = hosts_.emplace_back(size_bytes);
    return pinned_.emplace_back(Good(gpu_->Pin(host.bytes())));
  }

  std::shared_ptr<device::Device> gpu_;
  std::deque<SharedBytes> hosts_;
  std::deque<device::PinnedBytes> pinned_;
  device::DeviceStream stream_;
};

// Keeps the streams of a program from being done, until it is destroyed.
class EndlessWork {
 public:
  explicit EndlessWork(device::Device& gpu)
      : pinned_(Good(gpu.Pin(host_.bytes()))), mark_(Good(device::DeviceMark::In(pinned_, 0))) {}
  ~EndlessWork() { End(); }
  EndlessWork(const EndlessWork&) = delete;
  EndlessWork& operator=(const EndlessWork&) = delete;

  void BeginOn(device::DeviceStream& stream) {
    Must(stream.AwaitAll(std::array{device::MarkWait{mark_, 1}}));
  }
  void End() { mark_.Raise(1); }

 private:
  SharedBytes host_{4096};
  device::PinnedBytes pinned_;
  device::DeviceMark mark_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_SYNC_ON_DEVICE_TENSORS_ON_DEVICE_H_
