#include "lmdbio/sync/on_device/event_pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <vector>

#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::sync {
namespace {

using device::DeviceEvent;
using test::EmulatedGpu;
using test::Good;

TEST_CASE("EventPool uses an event again, and makes one if all are held", "[event_pool]") {
  const EmulatedGpu gpu;
  const auto pool = Good(EventPool::Make(gpu.Open(), 2));
  CHECK(gpu->CallCount("cuEventCreate") == 2);
  for (int i = 0; i < 100; ++i) {
    const auto first = Good(pool->Take());
    const auto second = Good(pool->Take());
    CHECK(first->native() != second->native());
  }
  CHECK(gpu->CallCount("cuEventCreate") == 2);
  std::vector<std::shared_ptr<DeviceEvent>> held;
  std::set<device::EventHandle> handles;
  for (int i = 0; i < 5; ++i) {
    held.push_back(Good(pool->Take()));
    handles.insert(held.back()->native());
  }
  CHECK(handles.size() == 5);
  CHECK(gpu->CallCount("cuEventCreate") == 5);
  held.clear();
  CHECK(Good(pool->Take()) != nullptr);
  CHECK(gpu->CallCount("cuEventCreate") == 5);
}

TEST_CASE("Events outlive their pool, and go with the last of them", "[event_pool]") {
  const EmulatedGpu gpu;
  auto pool = Good(EventPool::Make(gpu.Open(), 1));
  auto event = Good(pool->Take());
  pool.reset();
  CHECK(gpu->Objects().events == 1);
  CHECK(Good(event->IsDone()));
  event.reset();
  CHECK(gpu->Objects().total() == 0);
}

TEST_CASE("EventPool tells that no event could be made", "[event_pool]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  gpu->FailCall("cuEventCreate", 2, device::driver_code::kOutOfMemory);
  const auto pool = EventPool::Make(device, 2);
  REQUIRE_FALSE(pool);
  CHECK(pool.error().code() == ErrorCode::kResourceExhausted);
}

TEST_CASE("A child of fork() gets no event, and lets go of those of its parent", "[event_pool]") {
  const EmulatedGpu gpu;
  const auto pool = Good(EventPool::Make(gpu.Open(), 1));
  auto event = Good(pool->Take());
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    event.reset();  // the stand-in ends a child that calls it
    const auto taken = pool->Take();
    ::_exit(!taken && taken.error().code() == ErrorCode::kUnsupported ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

}  // namespace
}  // namespace lmdbio::sync
