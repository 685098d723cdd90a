// Memory of one GPU that work of another one of this process uses. The first cases check the
// stand-in.

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lmdbio/device/device.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::EmulatedObjects;
using test::Good;
using test::SharedBytes;

constexpr size_t kBytes = 64;

// The context of a GPU, as the program itself has it.
class OwnContext {
 public:
  OwnContext(const EmulatedGpu& gpu, int ordinal) : driver_(gpu.table()), ordinal_(ordinal) {
    if (driver_.DevicePrimaryCtxRetain(&handle_, ordinal) != 0) throw std::runtime_error("retain");
  }
  ~OwnContext() { driver_.DevicePrimaryCtxRelease(ordinal_); }
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;

  ContextHandle handle() const { return handle_; }
  DriverCode EnableAccessTo(ContextHandle peer, unsigned flags = 0) const {
    driver_.CtxSetCurrent(handle_);
    return driver_.CtxEnablePeerAccess(peer, flags);
  }

 private:
  const DriverTable& driver_;
  const int ordinal_;
  ContextHandle handle_ = nullptr;
};

// GPU 0 has a stream and pinned memory, and GPU 1 has memory.
struct PeerGpus {
  EmulatedGpu gpu;
  SharedBytes host{4096};
  std::shared_ptr<Device> first = gpu.Open(0);
  std::shared_ptr<Device> second = gpu.Open(1);
  DeviceStream stream = Good(first->MakeStream());
  PinnedBytes pinned = Good(first->Pin(host.bytes()));
  DeviceMemory memory = Good(second->Allocate(kBytes));

  void EnableAccess() const {
    const OwnContext user(gpu, 0);
    const OwnContext owner(gpu, 1);
    REQUIRE(user.EnableAccessTo(owner.handle()) == driver_code::kSuccess);
  }
  bool CanAccess(int from, int to) const {
    int can = -1;
    REQUIRE(gpu.table().DeviceCanAccessPeer(&can, from, to) == driver_code::kSuccess);
    return can == 1;
  }
};

using Use = std::function<Status(PeerGpus&)>;

Status RunOnFirst(PeerGpus& gpus, const std::function<DriverCode(const DriverTable&)>& call) {
  return gpus.first->context()->Run("call", call);
}

// Work of GPU 0 on memory of GPU 1.
const std::map<std::string, Use> kUses = {
    {"fill", [](PeerGpus& on) { return on.stream.Fill(on.memory.begin(), std::byte{1}, kBytes); }},
    {"copy in",
     [](PeerGpus& on) { return on.stream.CopyIn(on.memory.begin(), on.pinned, 0, kBytes); }},
    {"copy out",
     [](PeerGpus& on) { return on.stream.CopyOut(on.pinned, 0, on.memory.begin(), kBytes); }},
    {"copy from plain memory",
     [](PeerGpus& on) {
       return RunOnFirst(on, [&](const DriverTable& driver) {
         uint64_t word = 1;
         return driver.MemcpyHtoDAsync(on.memory.begin().value, &word, 8, on.stream.native());
       });
     }},
    {"copy to plain memory",
     [](PeerGpus& on) {
       return RunOnFirst(on, [&](const DriverTable& driver) {
         uint64_t word = 1;
         return driver.MemcpyDtoHAsync(&word, on.memory.begin().value, 8, on.stream.native());
       });
     }},
    {"batch of copies",
     [](PeerGpus& on) {
       return RunOnFirst(on, [&](const DriverTable& driver) {
         uint64_t to = on.memory.begin().value;
         uint64_t from = to + 32;
         size_t size = 32;
         size_t first = 0;
         size_t failed = 0;
         MemcpyAttributes attributes;
         return driver.MemcpyBatchAsync(&to, &from, &size, 1, &attributes, &first, 1, &failed,
                                        on.stream.native());
       });
     }},
    {"write of a word",
     [](PeerGpus& on) {
       return RunOnFirst(on, [&](const DriverTable& driver) {
         return driver.StreamWriteValue64(on.stream.native(), on.memory.begin().value, 1, 0);
       });
     }},
    {"wait for a word", [](PeerGpus& on) {
       return RunOnFirst(on, [&](const DriverTable& driver) {
         MemoryOperation wait = {.address = on.memory.begin().value, .flags = kWaitUntilAtLeast};
         return driver.StreamBatchMemOp(on.stream.native(), 1, &wait, 0);
       });
     }}};

// The status of the work once it is done. Calls that wait for it have its failure, too.
Status StatusOf(PeerGpus& gpus, const Use& use) {
  LMDBIO_TRY_VOID(use(gpus));
  return gpus.stream.Synchronize();
}

TEST_CASE("Work that uses memory of another GPU without access ends its context",
          "[device_peers]") {
  for (const auto& [name, use] : kUses) {
    INFO(name);
    PeerGpus gpus;
    const Status status = StatusOf(gpus, use);
    REQUIRE(!status);
    CHECK_THAT(status.error().message(), ContainsSubstring("GPU 0"));
    CHECK_THAT(status.error().message(), ContainsSubstring("CUDA_ERROR_ILLEGAL_ADDRESS"));
    CHECK(gpus.gpu.Peek(gpus.memory.begin(), kBytes) == std::string(kBytes, '\0'));
    CHECK(!gpus.first->Allocate(kBytes));
    CHECK(gpus.second->Allocate(kBytes));
  }
}

TEST_CASE("With access to another GPU, work uses its memory", "[device_peers]") {
  for (const auto& [name, use] : kUses) {
    INFO(name);
    PeerGpus gpus;
    gpus.EnableAccess();
    CHECK(StatusOf(gpus, use));
  }
}

TEST_CASE("A GPU that reaches another one no longer loses its context", "[device_peers]") {
  PeerGpus gpus;
  gpus.EnableAccess();
  gpus.gpu->SetReach(0, 1, false);
  CHECK(!StatusOf(gpus, kUses.at("fill")));
}

TEST_CASE("Access goes from one GPU to another, and not back", "[device_peers]") {
  PeerGpus gpus;
  gpus.EnableAccess();
  const DeviceMemory of_first = Good(gpus.first->Allocate(kBytes));
  DeviceStream of_second = Good(gpus.second->MakeStream());
  REQUIRE(of_second.Fill(of_first.begin(), std::byte{1}, kBytes));
  CHECK(!of_second.Synchronize());
}

TEST_CASE("A copy from GPU to GPU needs no access", "[device_peers]") {
  PeerGpus gpus;
  gpus.gpu->SetReach(0, 1, false);
  const DeviceMemory of_first = Good(gpus.first->Allocate(kBytes));
  REQUIRE(gpus.stream.Fill(of_first.begin(), std::byte{'f'}, kBytes));
  REQUIRE(gpus.stream.Copy(gpus.memory.begin(), of_first.begin(), kBytes));
  REQUIRE(gpus.stream.Synchronize());
  CHECK(gpus.gpu.Peek(gpus.memory.begin(), kBytes) == std::string(kBytes, 'f'));
}

TEST_CASE("All GPUs use pinned memory", "[device_peers]") {
  PeerGpus gpus;
  DeviceStream of_second = Good(gpus.second->MakeStream());
  test::Write(gpus.pinned, std::string(kBytes, 'p'));
  REQUIRE(of_second.CopyIn(gpus.memory.begin(), gpus.pinned, 0, kBytes));
  REQUIRE(of_second.Fill(gpus.pinned.span().begin, std::byte{'q'}, kBytes));
  REQUIRE(of_second.Synchronize());
  CHECK(gpus.gpu.Peek(gpus.memory.begin(), kBytes) == std::string(kBytes, 'p'));
  CHECK(test::Read(gpus.pinned, kBytes) == std::string(kBytes, 'q'));
}

TEST_CASE("The stand-in gives access with the codes of a driver", "[device_peers]") {
  const PeerGpus gpus;
  const OwnContext user(gpus.gpu, 0);
  const OwnContext owner(gpus.gpu, 1);
  CHECK(user.EnableAccessTo(owner.handle(), 1) == driver_code::kInvalidValue);
  CHECK(user.EnableAccessTo(nullptr) == driver_code::kInvalidContext);
  CHECK(user.EnableAccessTo(user.handle()) == driver_code::kInvalidContext);
  CHECK(user.EnableAccessTo(owner.handle()) == driver_code::kSuccess);
  CHECK(user.EnableAccessTo(owner.handle()) == driver_code::kPeerAccessAlreadyEnabled);
  gpus.gpu->SetReach(1, 0, false);
  CHECK(owner.EnableAccessTo(user.handle()) == driver_code::kPeerAccessUnsupported);
  CHECK(gpus.CanAccess(0, 1));
  CHECK(!gpus.CanAccess(1, 0));
  int can = 0;
  for (const int ordinal : {-1, test::kEmulatedDevices}) {
    CHECK(gpus.gpu.table().DeviceCanAccessPeer(&can, 0, ordinal) == driver_code::kInvalidDevice);
    CHECK(gpus.gpu.table().DeviceCanAccessPeer(&can, ordinal, 0) == driver_code::kInvalidDevice);
  }
}

TEST_CASE("Access ends with the context of either GPU", "[device_peers]") {
  const EmulatedGpu gpu;
  auto user = std::make_unique<OwnContext>(gpu, 0);
  auto owner = std::make_unique<OwnContext>(gpu, 1);
  REQUIRE(user->EnableAccessTo(owner->handle()) == driver_code::kSuccess);
  SECTION("that uses memory") {
    user.reset();
    user = std::make_unique<OwnContext>(gpu, 0);
  }
  SECTION("that owns memory") {
    owner.reset();
    owner = std::make_unique<OwnContext>(gpu, 1);
  }
  CHECK(user->EnableAccessTo(owner->handle()) == driver_code::kSuccess);
}

TEST_CASE("The environment tells which GPUs do not reach each other", "[device_peers]") {
  ::setenv("LMDBIO_EMULATED_GPU_UNREACHED", "0-1,2-0", 1);
  const PeerGpus gpus;
  ::unsetenv("LMDBIO_EMULATED_GPU_UNREACHED");
  for (int from = 0; from < test::kEmulatedDevices; ++from) {
    for (int to = 0; to < test::kEmulatedDevices; ++to) {
      const bool is_named = (from == 0 && to == 1) || (from == 2 && to == 0);
      CHECK(gpus.CanAccess(from, to) == !is_named);
    }
  }
}

// Whether the error says that GPU 0 has no access to GPU 1.
void CheckNoAccess(const PeerGpus& gpus, const MemoryTicket& ticket) {
  const EmulatedObjects before = gpus.gpu->Objects();
  const auto imported = gpus.first->Import(ticket);
  REQUIRE(!imported);
  CHECK(imported.error().code() == ErrorCode::kUnsupported);
  CHECK_THAT(imported.error().message(), ContainsSubstring("GPU 0"));
  CHECK_THAT(imported.error().message(), ContainsSubstring("GPU 1"));
  CHECK(gpus.gpu->Objects().total() == before.total());
  CHECK(gpus.first->release_failure());
  CHECK(gpus.second->release_failure());
}

TEST_CASE("A ticket of another GPU of this process gives access to its memory", "[device_peers]") {
  EmulatedGpu gpu;
  {
    PeerGpus gpus;
    const DeviceMemory imported = Good(gpus.first->Import(Good(gpus.second->Share(gpus.memory))));
    CHECK(imported.span() == gpus.memory.span());
    CHECK(!imported.is_imported());
    REQUIRE(gpus.stream.Fill(imported.begin(), std::byte{'i'}, kBytes));
    REQUIRE(gpus.stream.CopyOut(gpus.pinned, 0, imported.begin(), kBytes));
    REQUIRE(gpus.stream.Synchronize());
    CHECK(test::Read(gpus.pinned, kBytes) == std::string(kBytes, 'i'));
    CHECK(gpus.gpu->CallCount("cuIpcOpenMemHandle") == 0);

    const DeviceMemory more = Good(gpus.second->Allocate(kBytes));
    CHECK(gpus.first->Import(Good(gpus.second->Share(more))));  // access is there already
  }
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("Memory of another GPU belongs to that GPU", "[device_peers]") {
  PeerGpus gpus;
  auto owned = std::make_unique<DeviceMemory>(Good(gpus.second->Allocate(kBytes)));
  const DeviceMemory imported = Good(gpus.first->Import(Good(gpus.second->Share(*owned))));
  const auto* const pointer = reinterpret_cast<const void*>(imported.begin().value);
  CHECK(Good(gpus.first->Describe(pointer)).ordinal == 1);
  CHECK(Good(gpus.second->Describe(pointer)).ordinal == 1);
  owned.reset();
  gpus.second.reset();
  REQUIRE(gpus.stream.Fill(imported.begin(), std::byte{1}, kBytes));
  CHECK(gpus.stream.Synchronize());  // the import keeps the memory
}

TEST_CASE("An import keeps the access of its GPU", "[device_peers]") {
  const EmulatedGpu gpu;
  {
    const auto owner = gpu.Open(1);
    const DeviceMemory memory = Good(owner->Allocate(kBytes));
    const DeviceMemory imported = Good(gpu.Open(0)->Import(Good(owner->Share(memory))));
    DeviceStream stream = Good(gpu.Open(0)->MakeStream());
    REQUIRE(stream.Fill(imported.begin(), std::byte{1}, kBytes));
    CHECK(stream.Synchronize());
  }
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("Memory of the same GPU needs no access", "[device_peers]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open(1);
  const DeviceMemory memory = Good(device->Allocate(kBytes));
  CHECK(gpu.Open(1)->Import(Good(device->Share(memory))));
  CHECK(gpu->CallCount("cuDeviceCanAccessPeer") == 0);
  CHECK(gpu->CallCount("cuCtxEnablePeerAccess") == 0);
}

TEST_CASE("GPUs that do not reach each other are named", "[device_peers]") {
  const PeerGpus gpus;
  const MemoryTicket ticket = Good(gpus.second->Share(gpus.memory));
  SECTION("the driver tells it before") {
    gpus.gpu->SetReach(0, 1, false);
    CheckNoAccess(gpus, ticket);
    CHECK(gpus.gpu->CallCount("cuCtxEnablePeerAccess") == 0);
  }
  SECTION("the driver refuses access") {
    gpus.gpu->FailCall("cuCtxEnablePeerAccess", 1, driver_code::kPeerAccessUnsupported);
    CheckNoAccess(gpus, ticket);
  }
  SECTION("the GPU has access to too many others") {
    gpus.gpu->FailCall("cuCtxEnablePeerAccess", 1, driver_code::kTooManyPeers);
    CheckNoAccess(gpus, ticket);
  }
  CHECK(gpus.gpu->FaultsLeft() == 0);
}

TEST_CASE("A driver that gives no access to other GPUs says so", "[device_peers]") {
  for (const char* const missing : {"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess"}) {
    const PeerGpus gpus;
    gpus.gpu->HideFunction(missing);
    const DriverTable table = Good(LoadDriver(test::kDriver));
    const auto device = Good(Device::Open(0, table));
    const auto imported = device->Import(Good(gpus.second->Share(gpus.memory)));
    REQUIRE(!imported);
    CHECK(imported.error().code() == ErrorCode::kUnsupported);
    CHECK(imported.error().message() == "GPU 0: this driver gives no access to memory of GPU 1");
  }
}

TEST_CASE("Memory of a GPU whose context has ended is refused with its first error",
          "[device_peers]") {
  PeerGpus gpus;
  const MemoryTicket ticket = Good(gpus.second->Share(gpus.memory));
  gpus.gpu->FailCall("cuMemAlloc", 1, driver_code::kLaunchFailed);
  const std::string reason = gpus.second->Allocate(kBytes).error().message();
  CHECK(gpus.first->Import(ticket).error().message() == reason);
  CHECK(gpus.first->Allocate(kBytes));  // the context of this GPU goes on
}

TEST_CASE("A question about access may end the context, like any call", "[device_peers]") {
  const PeerGpus gpus;
  const MemoryTicket ticket = Good(gpus.second->Share(gpus.memory));
  gpus.gpu->FailCall("cuDeviceCanAccessPeer", 1, driver_code::kLaunchFailed);
  const std::string reason = gpus.first->Import(ticket).error().message();
  CHECK_THAT(reason, ContainsSubstring("GPU 0: cuDeviceCanAccessPeer of GPU 1: CUDA_ERROR_LAUNCH"));
  const uint64_t calls = gpus.gpu->CallCount(nullptr);
  CHECK(gpus.first->Allocate(kBytes).error().message() == reason);
  CHECK(gpus.first->Import(ticket).error().message() == reason);
  CHECK(gpus.gpu->CallCount(nullptr) == calls);  // the driver is left alone
}

}  // namespace
}  // namespace lmdbio::device
