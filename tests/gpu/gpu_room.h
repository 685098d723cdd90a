// tests/gpu/gpu_room.h - memory of a GPU with an image of it on the host.
#ifndef LMDBIO_TESTS_GPU_GPU_ROOM_H_
#define LMDBIO_TESTS_GPU_GPU_ROOM_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "lmdbio/device/device.h"
#include "lmdbio/device/device_memory.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/device/pinned_bytes.h"
#include "tests/support/good.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::test {

// Bytes of a GPU, written and read as a whole. Every byte counts: also those beside the values of a
// kernel.
class GpuRoom {
 public:
  GpuRoom(device::Device& gpu, uint64_t size_bytes)
      : memory_(Good(gpu.Allocate(size_bytes))),
        host_(size_bytes),
        pinned_(Good(gpu.Pin(host_.bytes()))) {}

  device::DeviceAddress At(uint64_t offset) const { return memory_.begin() + offset; }
  device::DeviceSpan Part(uint64_t offset, uint64_t size_bytes) const {
    return {At(offset), size_bytes};
  }
  uint64_t size_bytes() const { return memory_.size_bytes(); }

  // Enqueues a copy. The stream is done with the last one.
  void Write(device::DeviceStream& stream, const std::string& bytes) {
    std::memcpy(host_.bytes().data(), bytes.data(), bytes.size());
    Must(stream.CopyIn(memory_.begin(), pinned_, 0, bytes.size()));
  }
  // Waits for the stream.
  std::string Read(device::DeviceStream& stream, uint64_t size_bytes) const {
    Must(stream.CopyOut(pinned_, 0, memory_.begin(), size_bytes));
    Must(stream.Synchronize());
    return {reinterpret_cast<const char*>(host_.bytes().data()), size_bytes};
  }

 private:
  device::DeviceMemory memory_;
  SharedBytes host_;
  device::PinnedBytes pinned_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_GPU_GPU_ROOM_H_
