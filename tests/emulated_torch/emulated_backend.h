// tests/emulated_torch/emulated_backend.h - PyTorch's view of the stand-in for a GPU's driver.
//
// A backend for PyTorch under its name PrivateUse1, so that programs train on the GPUs of
// tests/emulated_gpu. Memory of tensors is memory of the stand-in, so the host dies if it touches
// it. A stream of PyTorch is a stream of the stand-in. Operators copy their inputs to the host, run
// there, and copy the results to the device behind all work on the current stream.
//
// emulated_torch.py loads it. Only tests use it.
#ifndef LMDBIO_TESTS_EMULATED_TORCH_EMULATED_BACKEND_H_
#define LMDBIO_TESTS_EMULATED_TORCH_EMULATED_BACKEND_H_

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>

#include "lmdbio/device/driver_table.h"

namespace lmdbio::test {

inline constexpr auto kBackend = c10::DeviceType::PrivateUse1;

// The driver. Opened by the first call, which also makes the contexts of all devices.
const device::DriverTable& Driver();
// An error of PyTorch if a call of the driver has failed.
void Check(device::DriverCode result, const char* name);

c10::DeviceIndex DeviceCount();
// Of this thread. Its context is current.
c10::DeviceIndex CurrentDevice();
void SetDevice(c10::DeviceIndex device);

// The current stream of a device in this thread. The default stream is 0.
c10::StreamId CurrentStream(c10::DeviceIndex device);
c10::StreamId ExchangeStream(c10::DeviceIndex device, c10::StreamId stream);
c10::StreamId NewStream(c10::DeviceIndex device);
void DestroyStream(c10::DeviceIndex device, c10::StreamId stream);
// Waits for the work of all streams of a device. Returns the driver's error.
device::DriverCode SynchronizeAll(c10::DeviceIndex device);
device::StreamHandle HandleOf(c10::StreamId stream);

// As PyTorch's own allocator for GPUs: memory that is freed goes to the next tensor of its size on
// the same stream, although the work that uses it may not have run.
c10::Allocator& DeviceAllocator();
// Memory of a tensor that work on another stream uses, too, stays until that work is done.
void RecordUse(void* address, c10::StreamId stream);
// Bytes that tensors have, and that the driver has given out.
uint64_t UsedBytes();
uint64_t ReservedBytes();

// Copies between the host and a device, on its current stream. The first returns when the copy is
// enqueued, the second one when it is done.
void CopyIn(c10::DeviceIndex device, uint64_t to, const void* from, size_t size_bytes);
void CopyOut(c10::DeviceIndex device, void* to, uint64_t from, size_t size_bytes);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_EMULATED_TORCH_EMULATED_BACKEND_H_
