#include "lmdbio/device/device.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::SharedBytes;

TEST_CASE("Device tells the facts of its GPU", "[device]") {
  const EmulatedGpu gpu;
  const DeviceFacts facts = gpu.Open(2)->facts();
  CHECK(facts.ordinal == 2);
  CHECK(facts.name == "Emulated GPU 2");
  CHECK(facts.uuid == "GPU-02122232-4252-6272-8292-a2b2c2d2e2f2");
  CHECK(facts.driver_version == 13000);
  CHECK(facts.compute_major == 9);
  CHECK(facts.compute_minor == 0);
  CHECK(facts.multiprocessors == 4);
  CHECK(facts.memory_bytes == test::kEmulatedMemoryBytes);
  CHECK(facts.can_pin);
  CHECK(facts.can_share_memory);
  CHECK(facts.can_share_events);
  CHECK(facts.can_await_marks);
}

TEST_CASE("A GPU that is not there is kNotFound with the number of GPUs", "[device]") {
  const EmulatedGpu gpu;
  for (const int ordinal : {-1, 3}) {
    const auto device = Device::Open(ordinal, gpu.table());
    REQUIRE(!device);
    CHECK(device.error().code() == ErrorCode::kNotFound);
    CHECK_THAT(device.error().message(), ContainsSubstring("sees 3 GPUs"));
  }
}

TEST_CASE("A GPU without unified addresses is refused", "[device]") {
  const EmulatedGpu gpu;
  gpu->SetAttribute(DeviceAttribute::kUnifiedAddressing, 0);
  CHECK(Device::Open(0, gpu.table()).error().code() == ErrorCode::kUnsupported);
}

TEST_CASE("A driver that does not know an ability has none of it", "[device]") {
  const EmulatedGpu gpu;
  // The first three queries are of required facts.
  for (uint64_t query = 4; query <= 6; ++query) {
    gpu->FailCall("cuDeviceGetAttribute", query, driver_code::kInvalidValue);
  }
  const auto device = gpu.Open();
  CHECK(gpu->FaultsLeft() == 0);
  CHECK(!device->facts().can_pin);
  CHECK(!device->facts().can_share_events);
  CHECK(!device->facts().can_await_marks);
  CHECK(device->MakeEvent(DeviceEventKind::kShared).error().code() == ErrorCode::kUnsupported);
}

TEST_CASE("Objects may outlive the device, in any order", "[device]") {
  const EmulatedGpu gpu;
  const SharedBytes host(4096);
  {
    auto device = gpu.Open();
    auto memory = std::make_unique<DeviceMemory>(Good(device->Allocate(4096)));
    auto stream = std::make_unique<DeviceStream>(Good(device->MakeStream()));
    const PinnedBytes pinned = Good(device->Pin(host.bytes()));
    const DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kLocal));
    device.reset();
    REQUIRE(stream->CopyIn(memory->begin(), pinned, 0, 4096));
    REQUIRE(stream->Synchronize());
    memory.reset();
    CHECK(gpu->Objects().allocations == 0);
    stream.reset();
  }
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("Two devices of one GPU share its context", "[device]") {
  const EmulatedGpu gpu;
  {
    const auto first = gpu.Open();
    const auto second = gpu.Open();
    const DeviceMemory memory = Good(first->Allocate(64));
    DeviceStream stream = Good(second->MakeStream());
    CHECK(stream.Fill(memory.begin(), std::byte{7}, 64));
    CHECK(stream.Synchronize());
    CHECK(gpu.Peek(memory.begin(), 64) == std::string(64, '\7'));
    CHECK(gpu->Objects().contexts == 2);
  }
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("A thread keeps the context that it had", "[device]") {
  const EmulatedGpu gpu;
  const auto first = gpu.Open(0);
  const auto second = gpu.Open(1);
  const DriverTable& driver = gpu.table();
  ContextHandle of_second = nullptr;
  REQUIRE(driver.DevicePrimaryCtxRetain(&of_second, 1) == 0);

  REQUIRE(driver.CtxSetCurrent(of_second) == 0);
  const DeviceMemory memory = Good(first->Allocate(64));
  ContextHandle now = nullptr;
  REQUIRE(driver.CtxGetCurrent(&now) == 0);
  CHECK(now == of_second);

  SECTION("a failure to give it back is told") {
    DeviceStream stream = Good(first->MakeStream());
    gpu->FailCall("cuCtxSetCurrent", 2, 999);
    CHECK(stream.Fill(memory.begin(), std::byte{1}, 64));
    CHECK(gpu->FaultsLeft() == 0);
    CHECK_THAT(first->release_failure().error().message(),
               ContainsSubstring("cuCtxSetCurrent to the thread's own context: code 999"));
    REQUIRE(driver.CtxSetCurrent(of_second) == 0);
  }
  SECTION("a thread without a context keeps the last one") {
    std::thread([&] {
      (void)first->Describe(&now);
      const uint64_t calls = gpu->CallCount("cuCtxSetCurrent");
      (void)first->Describe(&now);
      CHECK(gpu->CallCount("cuCtxSetCurrent") == calls);
    }).join();
  }
  REQUIRE(driver.DevicePrimaryCtxRelease(1) == 0);
}

TEST_CASE("A thread may keep the context of a GPU that was closed", "[device]") {
  const EmulatedGpu gpu;
  auto closed = gpu.Open(1);
  const auto device = gpu.Open(0);
  ContextHandle current = nullptr;
  closed.reset();
  REQUIRE(gpu.table().CtxGetCurrent(&current) == 0);
  REQUIRE(gpu.table().CtxSetCurrent(current) == driver_code::kInvalidContext);
  CHECK(device->MakeStream());
  CHECK(device->release_failure());
}

TEST_CASE("A failure that ends the context is the answer of every later call", "[device]") {
  const EmulatedGpu gpu;
  const SharedBytes host(4096);
  const auto device = gpu.Open();
  DeviceStream stream = Good(device->MakeStream());
  const DeviceMemory memory = Good(device->Allocate(64));
  const DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kLocal));
  gpu->FailCall("cuMemcpyDtoDAsync", 1, driver_code::kLaunchFailed);

  const Status first = stream.Copy(memory.begin(), memory.begin() + 32, 32);
  REQUIRE(!first);
  CHECK(first.error().code() == ErrorCode::kInternal);
  CHECK_THAT(first.error().message(),
             ContainsSubstring("GPU 0: cuMemcpyDtoDAsync: CUDA_ERROR_LAUNCH_FAILED"));
  const uint64_t calls = gpu->CallCount(nullptr);
  const std::string reason = first.error().message();
  CHECK(stream.Synchronize().error().message() == reason);
  CHECK(stream.IsDone().error().message() == reason);
  CHECK(event.IsDone().error().message() == reason);
  CHECK(device->Allocate(64).error().message() == reason);
  CHECK(device->Pin(host.bytes()).error().message() == reason);
  CHECK(device->MakeStream().error().message() == reason);
  CHECK(device->Describe(&gpu).error().message() == reason);
  CHECK(gpu->CallCount(nullptr) == calls);  // the driver is left alone
  CHECK(gpu.Open(1)->Allocate(64));         // and other GPUs go on
}

TEST_CASE("The first failure to give an object back is kept", "[device]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  CHECK(device->release_failure());
  gpu->FailCall("cuEventDestroy", 1, 999);
  gpu->FailCall("cuStreamDestroy", 1, driver_code::kInvalidHandle);
  { const DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kLocal)); }
  { const DeviceStream stream = Good(device->MakeStream()); }
  CHECK(gpu->FaultsLeft() == 0);
  CHECK(device->release_failure().error().message() == "GPU 0: cuEventDestroy: code 999");
}

TEST_CASE("A child of fork() never calls the driver", "[device]") {
  const EmulatedGpu gpu;
  const SharedBytes host(4096);
  {
    const auto device = gpu.Open();
    auto memory = std::make_unique<DeviceMemory>(Good(device->Allocate(64)));
    auto stream = std::make_unique<DeviceStream>(Good(device->MakeStream()));
    auto event = std::make_unique<DeviceEvent>(Good(device->MakeEvent(DeviceEventKind::kLocal)));
    auto pinned = std::make_unique<PinnedBytes>(Good(device->Pin(host.bytes())));
    test::CheckInChild([&] {  // the stand-in aborts if it is called
      const Status status = stream->CopyIn(memory->begin(), *pinned, 0, 64);
      CHILD_CHECK(!status && status.error().code() == ErrorCode::kUnsupported);
      CHILD_CHECK(status.error().message().find("fork()") != std::string::npos);
      CHILD_CHECK(!device->Allocate(64));
      CHILD_CHECK(!event->IsDone());
      CHILD_CHECK(!device->Describe(host.bytes().data()));
      CHILD_CHECK(device->release_failure());
      pinned.reset();
      event.reset();
      stream.reset();
      memory.reset();
      return test::Verdict::kRight;
    });
    CHECK(stream->CopyIn(memory->begin(), *pinned, 0, 64));  // the parent is not disturbed
    CHECK(stream->Synchronize());
  }
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("Threads share a device", "[device]") {
  const EmulatedGpu gpu;
  {
    const auto device = gpu.Open();
    std::vector<std::thread> threads;
    std::atomic<int> right = 0;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        const SharedBytes host(4096);
        for (int round = 0; round < 20; ++round) {
          DeviceStream stream = Good(device->MakeStream());
          const DeviceMemory memory = Good(device->Allocate(1024));
          const PinnedBytes pinned = Good(device->Pin(host.bytes()));
          const std::string bytes(1024, static_cast<char>('a' + thread));
          test::Write(pinned, bytes);
          DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kLocal));
          const bool is_enqueued = stream.CopyIn(memory.begin(), pinned, 0, 1024).has_value() &&
                                   stream.Record(event).has_value();
          while (!Good(event.IsDone())) std::this_thread::yield();
          const auto facts =
              Good(device->Describe(reinterpret_cast<const void*>(memory.begin().value + 1023)));
          right += is_enqueued && facts.range == memory.span() &&
                   gpu.Peek(memory.begin(), 1024) == bytes;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(right == 80);
  }
  CHECK(gpu->Objects().total() == 0);
}

}  // namespace
}  // namespace lmdbio::device
