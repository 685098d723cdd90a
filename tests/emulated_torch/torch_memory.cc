// The driver, streams and memory of the backend, and the functions that emulated_torch.py calls.

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/emulated_torch/emulated_backend.h"

namespace lmdbio::test {
namespace {

constexpr int kDevicesMax = 8;
constexpr size_t kLineBytes = 512;  // sizes of blocks, as PyTorch's
constexpr size_t kPinnedBytes = size_t{8} << 20;

struct OpenedDriver {
  const device::DriverTable* table = nullptr;
  int count = 0;
  std::array<device::ContextHandle, kDevicesMax> contexts = {};
};

OpenedDriver OpenDriver() {
  OpenedDriver opened;
  const Result<const device::DriverTable*> found = device::SystemDriver();
  TORCH_CHECK(found.has_value(), "there is no driver");
  opened.table = *found;
  Check(opened.table->Init(0), "cuInit");
  Check(opened.table->DeviceGetCount(&opened.count), "cuDeviceGetCount");
  for (int i = 0; i < opened.count; ++i) {
    Check(opened.table->DevicePrimaryCtxRetain(&opened.contexts.at(static_cast<size_t>(i)), i),
          "cuDevicePrimaryCtxRetain");
  }
  return opened;
}

const OpenedDriver& Opened() {
  static const OpenedDriver& opened = *new OpenedDriver(OpenDriver());
  return opened;
}

thread_local c10::DeviceIndex current_device = 0;
thread_local std::array<c10::StreamId, kDevicesMax> current_streams = {};

// Pinned memory through which values reach a device. A copy keeps its part until it is done.
class PinnedRing {
 public:
  std::byte* Take(c10::DeviceIndex device, size_t size_bytes) {
    const size_t size = (size_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    TORCH_CHECK(size <= kPinnedBytes, "a copy of ", size_bytes, " bytes is too large");
    if (memory_ == nullptr) Make();
    if (next_ + size > kPinnedBytes) next_ = 0;
    // Queries, unlike waits, are no synchronising calls. The stand-in works meanwhile.
    while (!parts_.empty() && parts_.front().begin < next_ + size &&
           next_ < parts_.front().begin + parts_.front().size) {
      SetDevice(parts_.front().device);
      while (Driver().EventQuery(parts_.front().done) == device::driver_code::kNotReady) {
      }
      Check(Driver().EventDestroy(parts_.front().done), "cuEventDestroy");
      parts_.pop_front();
    }
    SetDevice(device);
    parts_.push_back({.device = device, .begin = next_, .size = size, .done = nullptr});
    next_ += size;
    return memory_ + parts_.back().begin;
  }

  void RecordCopy(device::StreamHandle stream) {
    Check(Driver().EventCreate(&parts_.back().done, device::kEventDisableTiming), "cuEventCreate");
    Check(Driver().EventRecord(parts_.back().done, stream), "cuEventRecord");
  }

 private:
  struct PinnedPart {
    c10::DeviceIndex device;
    size_t begin;
    size_t size;
    device::EventHandle done;
  };

  void Make() {
    void* const memory =
        ::mmap(nullptr, kPinnedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TORCH_CHECK(memory != MAP_FAILED, "no memory to pin");
    memory_ = static_cast<std::byte*>(memory);
    Check(Driver().MemHostRegister(memory, kPinnedBytes,
                                   device::kHostRegisterPortable | device::kHostRegisterDeviceMap),
          "cuMemHostRegister");
  }

  std::byte* memory_ = nullptr;
  size_t next_ = 0;
  std::deque<PinnedPart> parts_;  // oldest first
};

struct TensorBlock {
  c10::DeviceIndex device;
  c10::StreamId stream;
  size_t size_bytes;
  std::vector<c10::StreamId> users = {};  // other streams whose work uses it
};

// Memory that was freed while other streams may use it, until their work is done.
struct BusyBlock {
  void* address;
  TensorBlock block;
  std::vector<device::EventHandle> done;
};

// Never destroyed, because tensors may outlive everything else.
struct Memory {
  std::mutex mutex;
  std::unordered_map<void*, TensorBlock> used;
  std::map<std::tuple<c10::DeviceIndex, c10::StreamId, size_t>, std::vector<void*>> free;
  std::vector<BusyBlock> busy;
  std::map<c10::StreamId, c10::DeviceIndex> streams;  // but the default ones
  uint64_t used_bytes = 0;
  uint64_t reserved_bytes = 0;
  PinnedRing pinned;
};

Memory& TheMemory() {
  static Memory& memory = *new Memory;
  return memory;
}

void Free(void* address) {
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  const auto found = memory.used.find(address);
  if (found == memory.used.end()) return;
  BusyBlock freed = {.address = address, .block = std::move(found->second), .done = {}};
  memory.used.erase(found);
  memory.used_bytes -= freed.block.size_bytes;
  if (!freed.block.users.empty()) SetDevice(freed.block.device);
  for (const c10::StreamId user : freed.block.users) {
    freed.done.push_back(nullptr);
    Check(Driver().EventCreate(&freed.done.back(), device::kEventDisableTiming), "cuEventCreate");
    Check(Driver().EventRecord(freed.done.back(), HandleOf(user)), "cuEventRecord");
  }
  memory.busy.push_back(std::move(freed));
}

bool IsDone(const BusyBlock& freed) {
  return std::all_of(freed.done.begin(), freed.done.end(), [](device::EventHandle event) {
    return Driver().EventQuery(event) == device::driver_code::kSuccess;
  });
}

void TakeBack(Memory& memory) {
  std::vector<BusyBlock> busy;
  for (BusyBlock& freed : memory.busy) {
    if (!freed.done.empty()) SetDevice(freed.block.device);
    if (!IsDone(freed)) {
      busy.push_back(std::move(freed));
      continue;
    }
    for (device::EventHandle event : freed.done)
      Check(Driver().EventDestroy(event), "cuEventDestroy");
    const TensorBlock& block = freed.block;
    memory.free[{block.device, block.stream, block.size_bytes}].push_back(freed.address);
  }
  memory.busy = std::move(busy);
}

void* Take(size_t size_bytes) {
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  const TensorBlock block = {.device = CurrentDevice(),
                             .stream = CurrentStream(CurrentDevice()),
                             .size_bytes = (size_bytes + kLineBytes - 1) / kLineBytes * kLineBytes};
  TakeBack(memory);
  SetDevice(block.device);
  std::vector<void*>& free = memory.free[{block.device, block.stream, block.size_bytes}];
  void* address = nullptr;
  if (!free.empty()) {
    address = free.back();
    free.pop_back();
  } else {
    uint64_t made = 0;
    Check(Driver().MemAlloc(&made, block.size_bytes), "cuMemAlloc");
    address = std::bit_cast<void*>(made);
    memory.reserved_bytes += block.size_bytes;
  }
  memory.used_bytes += block.size_bytes;
  memory.used.emplace(address, block);
  return address;
}

class CachingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t size_bytes) override {
    const c10::Device device(kBackend, CurrentDevice());
    if (size_bytes == 0) return {nullptr, nullptr, &Free, device};
    void* const address = Take(size_bytes);
    return {address, address, &Free, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t size_bytes) const override {
    Check(Driver().MemcpyDtoDAsync(std::bit_cast<uint64_t>(to), std::bit_cast<uint64_t>(from),
                                   size_bytes, HandleOf(CurrentStream(CurrentDevice()))),
          "cuMemcpyDtoDAsync");
  }
};

}  // namespace

const device::DriverTable& Driver() { return *Opened().table; }

void Check(device::DriverCode result, const char* name) {
  TORCH_CHECK(result == device::driver_code::kSuccess, "the driver fails: ", name, " gives ",
              result);
}

c10::DeviceIndex DeviceCount() { return static_cast<c10::DeviceIndex>(Opened().count); }

c10::DeviceIndex CurrentDevice() { return current_device; }

void SetDevice(c10::DeviceIndex device) {
  current_device = device;
  Check(Driver().CtxSetCurrent(Opened().contexts.at(static_cast<size_t>(device))),
        "cuCtxSetCurrent");
}

c10::StreamId CurrentStream(c10::DeviceIndex device) {
  return current_streams.at(static_cast<size_t>(device));
}

c10::StreamId ExchangeStream(c10::DeviceIndex device, c10::StreamId stream) {
  return std::exchange(current_streams.at(static_cast<size_t>(device)), stream);
}

c10::StreamId NewStream(c10::DeviceIndex device) {
  SetDevice(device);
  device::StreamHandle stream = nullptr;
  Check(Driver().StreamCreateWithPriority(&stream, device::kStreamNonBlocking, 0),
        "cuStreamCreateWithPriority");
  const std::lock_guard lock(TheMemory().mutex);
  TheMemory().streams.emplace(std::bit_cast<c10::StreamId>(stream), device);
  return std::bit_cast<c10::StreamId>(stream);
}

void DestroyStream(c10::DeviceIndex device, c10::StreamId stream) {
  SetDevice(device);
  const std::lock_guard lock(TheMemory().mutex);
  TheMemory().streams.erase(stream);
  Check(Driver().StreamDestroy(HandleOf(stream)), "cuStreamDestroy");
}

device::DriverCode SynchronizeAll(c10::DeviceIndex device) {
  SetDevice(device);
  std::vector<c10::StreamId> streams = {0};
  {
    const std::lock_guard lock(TheMemory().mutex);
    for (const auto& [stream, its_device] : TheMemory().streams) {
      if (its_device == device) streams.push_back(stream);
    }
  }
  for (const c10::StreamId stream : streams) {
    const device::DriverCode result = Driver().StreamSynchronize(HandleOf(stream));
    if (result != device::driver_code::kSuccess) return result;
  }
  return device::driver_code::kSuccess;
}

device::StreamHandle HandleOf(c10::StreamId stream) {
  return std::bit_cast<device::StreamHandle>(stream);
}

c10::Allocator& DeviceAllocator() {
  static CachingAllocator& allocator = *new CachingAllocator;
  return allocator;
}

void CopyIn(c10::DeviceIndex device, uint64_t to, const void* from, size_t size_bytes) {
  if (size_bytes == 0) return;
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  const device::StreamHandle stream = HandleOf(CurrentStream(device));
  std::byte* const pinned = memory.pinned.Take(device, size_bytes);
  std::memcpy(pinned, from, size_bytes);
  Check(Driver().MemcpyHtoDAsync(to, pinned, size_bytes, stream), "cuMemcpyHtoDAsync");
  memory.pinned.RecordCopy(stream);
}

void CopyOut(c10::DeviceIndex device, void* to, uint64_t from, size_t size_bytes) {
  if (size_bytes == 0) return;
  SetDevice(device);
  Check(Driver().MemcpyDtoHAsync(to, from, size_bytes, HandleOf(CurrentStream(device))),
        "cuMemcpyDtoHAsync");
}

void RecordUse(void* address, c10::StreamId stream) {
  Memory& memory = TheMemory();
  const std::lock_guard lock(memory.mutex);
  const auto found = memory.used.find(address);
  if (found != memory.used.end() && found->second.stream != stream) {
    found->second.users.push_back(stream);
  }
}

uint64_t UsedBytes() {
  const std::lock_guard lock(TheMemory().mutex);
  return TheMemory().used_bytes;
}

uint64_t ReservedBytes() {
  const std::lock_guard lock(TheMemory().mutex);
  return TheMemory().reserved_bytes;
}

}  // namespace lmdbio::test

namespace {

void (*give_back)(int64_t number) = nullptr;

// A tensor of bytes in memory that others own. The number tells them when it is gone.
at::Tensor FromAddress(int64_t address, int64_t size_bytes, int64_t device, int64_t number) {
  void* const memory = std::bit_cast<void*>(address);
  c10::DataPtr bytes(
      memory, std::bit_cast<void*>(number),
      [](void* context) { give_back(std::bit_cast<int64_t>(context)); },
      c10::Device(lmdbio::test::kBackend, static_cast<c10::DeviceIndex>(device)));
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(size_bytes),
                       std::move(bytes), nullptr, false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({size_bytes});
  return tensor;
}

}  // namespace

TORCH_LIBRARY(emulated, library) { library.def("from_address", FromAddress); }

#define LMDBIO_EXPORT extern "C" __attribute__((visibility("default")))

LMDBIO_EXPORT int emulated_torch_device_count();
LMDBIO_EXPORT int emulated_torch_current_device();
LMDBIO_EXPORT void emulated_torch_set_device(int device);
LMDBIO_EXPORT int64_t emulated_torch_current_stream(int device);
LMDBIO_EXPORT int64_t emulated_torch_exchange_stream(int device, int64_t stream);
LMDBIO_EXPORT int64_t emulated_torch_new_stream(int device);
LMDBIO_EXPORT void emulated_torch_destroy_stream(int device, int64_t stream);
LMDBIO_EXPORT int emulated_torch_synchronize(int device);
LMDBIO_EXPORT void emulated_torch_set_give_back(void (*function)(int64_t number));
LMDBIO_EXPORT uint64_t emulated_torch_used_bytes();
LMDBIO_EXPORT uint64_t emulated_torch_reserved_bytes();

int emulated_torch_device_count() { return lmdbio::test::DeviceCount(); }
int emulated_torch_current_device() { return lmdbio::test::CurrentDevice(); }
void emulated_torch_set_device(int device) {
  lmdbio::test::SetDevice(static_cast<c10::DeviceIndex>(device));
}
int64_t emulated_torch_current_stream(int device) {
  return lmdbio::test::CurrentStream(static_cast<c10::DeviceIndex>(device));
}
int64_t emulated_torch_exchange_stream(int device, int64_t stream) {
  return lmdbio::test::ExchangeStream(static_cast<c10::DeviceIndex>(device), stream);
}
int64_t emulated_torch_new_stream(int device) {
  return lmdbio::test::NewStream(static_cast<c10::DeviceIndex>(device));
}
void emulated_torch_destroy_stream(int device, int64_t stream) {
  lmdbio::test::DestroyStream(static_cast<c10::DeviceIndex>(device), stream);
}
int emulated_torch_synchronize(int device) {
  return lmdbio::test::SynchronizeAll(static_cast<c10::DeviceIndex>(device));
}
void emulated_torch_set_give_back(void (*function)(int64_t number)) { give_back = function; }
uint64_t emulated_torch_used_bytes() { return lmdbio::test::UsedBytes(); }
uint64_t emulated_torch_reserved_bytes() { return lmdbio::test::ReservedBytes(); }
