// Goal: times are those of the device, for the work once. On the stand-in a timed event that is
// recorded takes a millisecond, and nothing else does.
#include "bench/on_device/device_timer.h"

#include "bench/on_device/roofs.h"
#include "tests/device/emulated_device.h"
#include "tests/support/catch.h"

namespace lmdbio::figures {
namespace {

using test::EmulatedGpu;
using test::Good;
using test::Must;

constexpr uint64_t kBytes = 4096;

struct TimedGpu {
  EmulatedGpu gpu;
  std::shared_ptr<device::Device> device = gpu.Open();
  device::DeviceMemory memory = Good(device->Allocate(kBytes));
  DeviceTimer timer = Good(DeviceTimer::Make(*device));
  device::DeviceEvent event = Good(device->MakeEvent(device::DeviceEventKind::kTimed));
  // Work of so many milliseconds.
  Enqueue Work(int milliseconds) {
    return [this, milliseconds]() -> Status {
      LMDBIO_TRY_VOID(timer.stream().Fill(memory.begin(), std::byte{7}, kBytes));
      for (int i = 0; i < milliseconds; ++i) LMDBIO_TRY_VOID(timer.stream().Record(event));
      return {};
    };
  }
};

TEST_CASE("A time is that of one piece of work", "[figures]") {
  TimedGpu timed;
  // The event at the end takes time, too.
  CHECK(Good(timed.timer.Time(timed.Work(1), 1)) == Approx(0.002));
  CHECK(Good(timed.timer.Time(timed.Work(3), 5)) == Approx(0.016 / 5));
  CHECK(timed.gpu.Peek(timed.memory.begin(), kBytes) == std::string(kBytes, '\7'));
}

TEST_CASE("Short work is repeated until a sample is long enough", "[figures]") {
  TimedGpu timed;
  CHECK(Good(timed.timer.RepeatsFor(timed.Work(1), 0)) == 1);
  CHECK(Good(timed.timer.RepeatsFor(timed.Work(1), 0.0149)) == 10);
  CHECK(Good(timed.timer.RepeatsFor(timed.Work(1), 1000)) == 256);
}

TEST_CASE("Two kinds of work take turns", "[figures]") {
  TimedGpu timed;
  const FigureSettings options = {.sample_count = 3};
  const TurnTimes times = Good(TimeInTurns(timed.timer, options, timed.Work(3), timed.Work(1)));
  CHECK(times.first.size() == 3);
  CHECK(times.second.size() == 3);
  for (const double ratio : times.Ratios()) CHECK(ratio == Approx(2));
  for (const double ratio : times.Ratios(0.25)) CHECK(ratio == Approx(0.5));
}

TEST_CASE("An error of the work ends the timing", "[figures]") {
  TimedGpu timed;
  const auto broken = []() -> Status { return Fail(ErrorCode::kInternal, "broken"); };
  CHECK(timed.timer.Time(broken, 1).error().message() == "broken");
  CHECK_FALSE(TimeInTurns(timed.timer, {.sample_count = 1}, timed.Work(1), broken));
}

TEST_CASE("The copies that bound others move all bytes that they count", "[figures]") {
  TimedGpu timed;
  const DeviceCopy on_device = Good(DeviceCopy::Make(*timed.device, kBytes));
  CHECK(on_device.moved_bytes() == 2 * kBytes);
  const PinnedCopy pinned = Good(PinnedCopy::Make(*timed.device, kBytes));
  CHECK(pinned.moved_bytes() == kBytes);
  const uint64_t before = timed.gpu->CallCount("cuMemcpyDtoDAsync");
  Must(on_device.EnqueueOn(timed.timer.stream()));
  Must(pinned.EnqueueOn(timed.timer.stream()));
  Must(AwaitDone(timed.timer.stream()));
  CHECK(timed.gpu->CallCount("cuMemcpyDtoDAsync") == before + 1);
}

}  // namespace
}  // namespace lmdbio::figures
