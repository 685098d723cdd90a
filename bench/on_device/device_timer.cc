#include "bench/on_device/device_timer.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace lmdbio::figures {
namespace {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceStream;

constexpr double kDoneSecondsMax = 20;
constexpr double kLeastSeconds = 1e-9;  // of events that have the same time

}  // namespace

Status AwaitDone(const DeviceStream& stream) {
  const double end = SecondsNow() + kDoneSecondsMax;
  while (true) {
    LMDBIO_TRY(const bool is_done, stream.IsDone());
    if (is_done) return {};
    if (SecondsNow() > end) {
      return Fail(ErrorCode::kInternal, "the device has not finished the work in 20 s");
    }
    std::this_thread::yield();
  }
}

Result<DeviceTimer> DeviceTimer::Make(device::Device& device) {
  LMDBIO_TRY(DeviceStream stream, device.MakeStream());
  LMDBIO_TRY(DeviceEvent begin, device.MakeEvent(DeviceEventKind::kTimed));
  LMDBIO_TRY(DeviceEvent end, device.MakeEvent(DeviceEventKind::kTimed));
  return DeviceTimer(std::move(stream), std::move(begin), std::move(end));
}

Result<double> DeviceTimer::Time(const Enqueue& enqueue, int repeats) {
  LMDBIO_TRY_VOID(stream_.Record(begin_));
  for (int i = 0; i < repeats; ++i) LMDBIO_TRY_VOID(enqueue());
  LMDBIO_TRY_VOID(stream_.Record(end_));
  LMDBIO_TRY_VOID(AwaitDone(stream_));
  LMDBIO_TRY(const double milliseconds, end_.MillisecondsSince(begin_));
  return std::max(milliseconds / 1e3 / repeats, kLeastSeconds);
}

Result<int> DeviceTimer::RepeatsFor(const Enqueue& enqueue, double seconds) {
  LMDBIO_TRY_VOID(Time(enqueue, 1));
  LMDBIO_TRY(const double once, Time(enqueue, 2));
  return static_cast<int>(std::clamp(std::ceil(seconds / once), 1.0, double{kRepeatsMax}));
}

std::vector<double> TurnTimes::Ratios(double factor) const {
  std::vector<double> ratios;
  for (size_t i = 0; i < first.size(); ++i) ratios.push_back(first[i] / second[i] * factor);
  return ratios;
}

Result<TurnTimes> TimeInTurns(DeviceTimer& timer, const FigureSettings& options,
                              const Enqueue& first, const Enqueue& second) {
  LMDBIO_TRY(const int first_repeats, timer.RepeatsFor(first, options.sample_seconds));
  LMDBIO_TRY(const int second_repeats, timer.RepeatsFor(second, options.sample_seconds));
  TurnTimes times;
  for (int i = 0; i < options.sample_count; ++i) {
    LMDBIO_TRY(const double first_seconds, timer.Time(first, first_repeats));
    LMDBIO_TRY(const double second_seconds, timer.Time(second, second_repeats));
    times.first.push_back(first_seconds);
    times.second.push_back(second_seconds);
  }
  return times;
}

}  // namespace lmdbio::figures
