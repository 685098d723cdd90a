// Goal: a tensor that is not what the program says is refused with its name, before anything is
// enqueued.
#include "lmdbio/sync/on_device/sync_device.h"

#include <memory>
#include <string>
#include <vector>

#include "lmdbio/base/align.h"
#include "lmdbio/base/kept_memory.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/collective/solo_collectives.h"
#include "tests/kernels/kernels_on_device.h"
#include "tests/support/catch.h"
#include "tests/sync/on_device/tensors_on_device.h"

namespace lmdbio::sync {
namespace {

using device::DeviceAddress;
using device::DeviceMemory;
using device::DeviceStream;
using test::EmulatedGpu;
using test::Good;
using test::ProgramOnDevice;
using test::SharedBytes;

constexpr TensorUse kBoth = {.has_input = true, .has_output = true};

Request RequestOf(int64_t count) {
  Request request;
  request.name = "conv1";
  request.shape = {count};
  request.memory = MemoryKind::kDevice;
  return request;
}

template <typename T>
void CheckRefused(const Result<T>& result, ErrorCode code, const std::string& text) {
  REQUIRE_FALSE(result);
  CHECK(result.error().code() == code);
  CHECK_THAT(result.error().message(), ContainsSubstring(text));
}

DeviceAddress AddressOf(const void* pointer) { return {reinterpret_cast<uint64_t>(pointer)}; }

TEST_CASE("SyncDevice opens the GPU of that number, or says that there is none", "[sync_device]") {
  const EmulatedGpu gpu;
  const auto opened = Good(SyncDevice::Open(1, test::EmulatedKernelImage()));
  CHECK(opened->notes().empty());
  CHECK_FALSE(opened->has_ring());
  CheckRefused(SyncDevice::Open(3), ErrorCode::kNotFound, "GPU 3: this process sees 3 GPUs");
}

TEST_CASE("A GPU without kernels for it works, with a note", "[sync_device]") {
  const EmulatedGpu gpu;
  ranks::SoloHealth health;
  const auto without = Good(SyncDevice::Open(0, {}));
  CHECK_THAT(without->notes().at(0), ContainsSubstring("built without kernels"));
  CHECK_THAT(without->notes().at(0), ContainsSubstring("one copy each"));
  gpu->FailCall("cuModuleLoadData", 1, device::driver_code::kNoBinaryForGpu);
  const auto other = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
  CHECK_THAT(other->notes().at(0), ContainsSubstring("CUDA_ERROR_NO_BINARY_FOR_GPU"));
  REQUIRE(other->MakeRing({}, uint64_t{1} << 20, health));
  CHECK_THAT(other->Description().at(0), ContainsSubstring("one copy each"));
  gpu->FailCall("cuModuleLoadData", 1, device::driver_code::kOutOfMemory);
  CheckRefused(SyncDevice::Open(0, test::EmulatedKernelImage()), ErrorCode::kResourceExhausted,
               "cuModuleLoadData");
}

TEST_CASE("SyncDevice pins the given memory, or its own if that is too small", "[sync_device]") {
  const EmulatedGpu gpu;
  ranks::SoloHealth health;
  const uint64_t page = MemoryPageBytes();
  const SharedBytes host(SyncDevice::kStagingBytes + page);
  for (const uint64_t given : {SyncDevice::kStagingBytes + page, SyncDevice::kStagingBytes - 1}) {
    const auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
    REQUIRE(opened->MakeRing(host.bytes().first(given), 0, health));
    CHECK(opened->has_ring());
    const std::byte* place = nullptr;
    const StagedWork nothing{{{}}, StagedChunks({0}, {64}, opened->ring().chunk_bytes())};
    REQUIRE(opened->ring().Run(nothing, [&](MutableBytes values, uint64_t) {
      place = values.data();
      return Result<CallOutcome>(CallOutcome::kDone);
    }));
    const bool is_given = given > SyncDevice::kStagingBytes;
    CHECK((place == host.bytes().data()) == is_given);
    CHECK(reinterpret_cast<uint64_t>(place) % page == 0);
  }
}

TEST_CASE("The size of a chunk is the ample one, within bounds", "[sync_device]") {
  const EmulatedGpu gpu;
  ranks::SoloHealth health;
  for (const auto& [ample, chunk, slots] :
       std::vector<std::array<uint64_t, 3>>{{1, SyncDevice::kChunkBytesMin, 4},
                                            {1'000'050, 1'000'000, 4},
                                            {uint64_t{1} << 30, SyncDevice::kChunkBytesMax, 4}}) {
    const auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
    REQUIRE(opened->MakeRing({}, ample, health));
    CHECK(opened->ring().chunk_bytes() == chunk);
    CHECK(opened->ring().slot_count() == slots);
    CHECK_THAT(opened->Description().at(0), ContainsSubstring(std::to_string(chunk)));
    CHECK_THAT(opened->Description().at(0), ContainsSubstring("Emulated GPU 0"));
    CHECK_THAT(opened->Description().at(0), ContainsSubstring("packed by kernels"));
  }
}

TEST_CASE("Memory that the host refuses to pin is an error with the remedy", "[sync_device]") {
  const EmulatedGpu gpu;
  ranks::SoloHealth health;
  const auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
  gpu->FailCall("cuMemHostRegister", 1, device::driver_code::kOutOfMemory);
  CheckRefused(opened->MakeRing({}, 0, health), ErrorCode::kResourceExhausted, "ulimit -l");
  CHECK_FALSE(opened->has_ring());
}

TEST_CASE("A tensor enters with an event behind the work of its stream", "[sync_device]") {
  const EmulatedGpu gpu;
  const auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
  ProgramOnDevice program(gpu.Open(0));
  const DeviceMemory memory = program.Allocate(64);
  program.WriteLater(memory.begin(), "1234567");
  const DeviceTensor tensor{memory.begin(), memory.begin(), program.stream().native()};
  const EventPtr ready = Good(opened->Enter(RequestOf(16), tensor, kBoth));
  CHECK(gpu->QueuedCount() == 2);  // nothing has run yet
  while (!Good(ready->IsDone())) {
  }
  CHECK(gpu.Peek(memory.begin(), 7) == "1234567");
}

TEST_CASE("Memory that is not of this GPU is refused, with tensor and kind", "[sync_device]") {
  const EmulatedGpu gpu;
  const auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
  ProgramOnDevice program(gpu.Open(0));
  ProgramOnDevice other(gpu.Open(1));
  const DeviceMemory memory = program.Allocate(64);
  const DeviceMemory theirs = other.Allocate(64);
  const SharedBytes host(4096);
  const auto pinned = Good(program.gpu().Pin(host.bytes()));
  const std::vector<float> plain(16);
  const DeviceAddress managed = {gpu->AllocateManaged(64)};
  const struct {
    DeviceAddress address;
    const char* text;
  } wrongs[] = {{AddressOf(plain.data()), "is memory of the host, not of GPU 0"},
                {AddressOf(host.bytes().data()), "is pinned memory of the host, not of GPU 0"},
                {managed, "is managed memory, not of GPU 0"},
                {theirs.begin(), "is memory of GPU 1, not of GPU 0"},
                {memory.begin() + 4, "is followed by 60 bytes of its memory; the tensor has 64"}};
  for (const auto& wrong : wrongs) {
    for (const bool is_input : {true, false}) {
      INFO(wrong.text << (is_input ? ", input" : ", output"));
      const DeviceTensor tensor{is_input ? wrong.address : memory.begin(),
                                is_input ? memory.begin() : wrong.address,
                                program.stream().native()};
      const auto entered = opened->Enter(RequestOf(16), tensor, kBoth);
      CheckRefused(entered, ErrorCode::kInvalidArgument, wrong.text);
      CHECK_THAT(entered.error().message(), StartsWith("tensor 'conv1': 0x"));
      // Memory that the operation does not use is not looked at.
      CHECK(opened->Enter(RequestOf(16), tensor, {.has_input = !is_input, .has_output = is_input}));
      CHECK(opened->Enter(RequestOf(0), tensor, kBoth));
    }
  }
  CHECK(opened->Enter(RequestOf(15), {memory.begin() + 4, memory.begin() + 4, nullptr}, kBoth));
}

TEST_CASE("A stream that is captured, or of another GPU, is refused", "[sync_device]") {
  const EmulatedGpu gpu;
  const auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
  ProgramOnDevice program(gpu.Open(0));
  ProgramOnDevice other(gpu.Open(1));
  const DeviceMemory memory = program.Allocate(64);
  const uint64_t recorded = gpu->CallCount("cuEventRecord");
  CheckRefused(opened->Enter(RequestOf(16),
                             {memory.begin(), memory.begin(), other.stream().native()}, kBoth),
               ErrorCode::kInvalidArgument, "tensor 'conv1': GPU 0");
  gpu->BeginCapture(program.stream().native());
  CheckRefused(opened->Enter(RequestOf(16),
                             {memory.begin(), memory.begin(), program.stream().native()}, kBoth),
               ErrorCode::kInvalidArgument, "tensor 'conv1': its stream is captured");
  CHECK(gpu->CallCount("cuEventRecord") == recorded);
}

TEST_CASE("A tensor of the host that is on a GPU is refused", "[sync_device]") {
  const EmulatedGpu gpu;
  const auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
  ProgramOnDevice program(gpu.Open(0));
  ProgramOnDevice other(gpu.Open(1));
  const SharedBytes host(4096);
  const auto pinned = Good(program.gpu().Pin(host.bytes()));
  const std::vector<float> plain(16);
  const DeviceMemory memory = program.Allocate(64);
  const DeviceMemory theirs = other.Allocate(64);
  const auto pointer = [](DeviceAddress address) {
    return reinterpret_cast<const void*>(address.value);
  };
  const Request request = RequestOf(16);
  CHECK(opened->CheckOnHost(request, plain.data()));
  CHECK(opened->CheckOnHost(request, host.bytes().data()));
  CheckRefused(opened->CheckOnHost(request, pointer(memory.begin())), ErrorCode::kInvalidArgument,
               "is memory of a GPU; the tensor is submitted as one of the host");
  CheckRefused(opened->CheckOnHost(request, pointer({gpu->AllocateManaged(64)})),
               ErrorCode::kInvalidArgument, "is managed memory");
  CHECK(Good(opened->KindOf(plain.data())) == MemoryKind::kHost);
  CHECK(Good(opened->KindOf(host.bytes().data())) == MemoryKind::kHost);
  CHECK(Good(opened->KindOf(pointer(memory.begin()))) == MemoryKind::kDevice);
  CHECK(Good(opened->KindOf(pointer(theirs.begin()))) == MemoryKind::kDevice);
}

TEST_CASE("Without an arena, placed memory is memory of the GPU as any other", "[sync_device]") {
  const EmulatedGpu gpu;
  ranks::SoloHealth health;
  ProgramOnDevice program(gpu.Open());
  const auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
  REQUIRE(opened->MakeRing({}, 0, health));
  REQUIRE(opened->MakeGradients(128));
  const device::DeviceSpan place = Good(opened->Place(64));
  CHECK(place.size_bytes == 64);
  CHECK(program.ReadNow(place.begin, 64) == std::string(64, '\0'));
  CHECK(Good(opened->Place(64)).begin == place.begin + 64);
  CheckRefused(opened->Place(1), ErrorCode::kResourceExhausted, "device_gradient_bytes 128");
  CHECK(opened->CheckOnDevice(RequestOf(16), place.begin));
  const auto none = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
  REQUIRE(none->MakeGradients(0));
  CHECK(Good(none->Place(0)).size_bytes == 0);
}

TEST_CASE("The memory of an arena begins with placed gradients", "[sync_device]") {
  const EmulatedGpu gpu;
  ranks::SoloHealth health;
  const auto group = ranks::SoloGroup();
  const auto meetings = SoloCollectives();
  const auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
  REQUIRE(opened->MakeRing({}, 0, health));
  REQUIRE(opened->MakeArena(*group, *meetings, {.gradient_bytes = 300, .buffer_bytes = 1000},
                            UsualWireTable(), health));
  REQUIRE(opened->MakeGradients(300));
  CHECK(opened->buffer_offset() == 512);
  CHECK(opened->collectives().arena().size_bytes == 1512);
  CHECK(opened->arena()->chunk_bytes() == 1000);
  const device::DeviceSpan first = Good(opened->Place(64));
  CHECK(first.begin == opened->collectives().arena().begin);
  const std::vector<Request> one = {RequestOf(16)};
  const std::vector<uint64_t> offsets = {0};
  const auto offset_of = [&](DeviceAddress address) {
    return opened->OffsetOfPlaced(one, std::vector{address.value}, offsets);
  };
  CHECK(offset_of(first.begin) == 0);
  CHECK(offset_of(Good(opened->Place(64)).begin) == 64);
  CHECK_FALSE(offset_of(first.begin + 32));
  CHECK_FALSE(offset_of(first.begin + 512));
}

TEST_CASE("Memory that the GPU, or another, may still use is kept", "[sync_device]") {
  const EmulatedGpu gpu;
  ranks::SoloHealth health;
  for (const int kept : {0, 1, 2}) {
    const size_t before = KeptCount();
    auto opened = Good(SyncDevice::Open(0, test::EmulatedKernelImage()));
    REQUIRE(opened->MakeRing({}, 0, health));
    REQUIRE(opened->MakeGradients(100));
    if (kept == 1) opened->KeepOwnMemory();
    if (kept == 2) opened->KeepAll();
    opened.reset();
    CHECK(gpu->Objects().pinned == (kept == 2 ? 1 : 0));
    CHECK(gpu->Objects().allocations == (kept == 2 ? 1 : 0));
    CHECK(gpu->Objects().streams == (kept == 2 ? 3 : 0));
    CHECK((KeptCount() > before) == (kept > 0));
  }
}

}  // namespace
}  // namespace lmdbio::sync
