// Memory of one GPU that work of another one uses. The first cases check the stand-in.

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

}  // namespace
}  // namespace lmdbio::device
