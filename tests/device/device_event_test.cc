#include "lmdbio/device/device_event.h"

#include "lmdbio/device/process_token.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::device {
namespace {

using test::EmulatedGpu;
using test::Good;

TEST_CASE("An event is done when the work before it is", "[device_event]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const DeviceMemory memory = Good(device->Allocate(64));
  DeviceStream stream = Good(device->MakeStream());
  DeviceEvent event = Good(device->MakeEvent(DeviceEventKind::kLocal));
  CHECK(!event.is_recorded());
  CHECK(Good(event.IsDone()));

  for (int i = 0; i < 8; ++i) REQUIRE(stream.Fill(memory.begin(), std::byte{5}, 64));
  REQUIRE(stream.Record(event));
  CHECK(event.is_recorded());
  CHECK(!Good(event.IsDone()));
  for (int looks = 0; !Good(event.IsDone()); ++looks) REQUIRE(looks < 100);
  CHECK(gpu.Peek(memory.begin(), 64) == std::string(64, '\5'));
}

TEST_CASE("Only recorded, timed events that are done have a time", "[device_event]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  DeviceStream stream = Good(device->MakeStream());
  DeviceEvent begin = Good(device->MakeEvent(DeviceEventKind::kTimed));
  DeviceEvent end = Good(device->MakeEvent(DeviceEventKind::kTimed));
  DeviceEvent plain = Good(device->MakeEvent(DeviceEventKind::kLocal));
  CHECK(end.MillisecondsSince(begin).error().code() == ErrorCode::kInvalidArgument);
  for (DeviceEvent* const event : {&begin, &plain, &end}) REQUIRE(stream.Record(*event));
  CHECK_THAT(end.MillisecondsSince(begin).error().message(), ContainsSubstring("not done"));
  REQUIRE(stream.Synchronize());
  CHECK(Good(end.MillisecondsSince(begin)) == Approx(2));
  CHECK(plain.MillisecondsSince(begin).error().code() == ErrorCode::kInvalidArgument);
  CHECK(end.MillisecondsSince(plain).error().code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("Only a shared event has a ticket", "[device_event]") {
  const EmulatedGpu gpu;
  const auto device = gpu.Open();
  const DeviceEvent local = Good(device->MakeEvent(DeviceEventKind::kLocal));
  CHECK(device->Share(local).error().code() == ErrorCode::kInvalidArgument);
  const DeviceEvent shared = Good(device->MakeEvent(DeviceEventKind::kShared));
  const EventTicket ticket = Good(device->Share(shared));
  CHECK(ticket.process == ProcessToken());
  const auto own = device->Import(ticket);
  CHECK(own.error().code() == ErrorCode::kInvalidArgument);
  CHECK(gpu->CallCount("cuIpcOpenEventHandle") == 0);
}

TEST_CASE("A refused event of another process is kUnsupported", "[device_event]") {
  const EmulatedGpu gpu;
  gpu->RefuseImports(driver_code::kNotSupported);
  const auto event = gpu.Open()->Import(EventTicket{.handle = {}, .process = 1});
  REQUIRE(!event);
  CHECK(event.error().code() == ErrorCode::kUnsupported);
  CHECK_THAT(event.error().message(),
             ContainsSubstring("cuIpcOpenEventHandle: CUDA_ERROR_NOT_SUPPORTED"));
  CHECK(gpu->Objects().events == 0);
}

TEST_CASE("A driver without shared events says so", "[device_event]") {
  const EmulatedGpu gpu;
  DriverTable table = gpu.table();
  table.IpcOpenEventHandle = nullptr;
  const auto device = Good(Device::Open(0, table));
  CHECK(device->MakeEvent(DeviceEventKind::kShared).error().code() == ErrorCode::kUnsupported);
  CHECK(device->Import(EventTicket{.handle = {}, .process = 1}).error().code() ==
        ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace lmdbio::device
