// bench/on_device/device_timer.h - the time of work on a device, by its events; and ratios of two
// kinds of work that are timed in turns.
#ifndef LMDBIO_BENCH_ON_DEVICE_DEVICE_TIMER_H_
#define LMDBIO_BENCH_ON_DEVICE_DEVICE_TIMER_H_

#include <functional>
#include <utility>
#include <vector>

#include "bench/on_device/figure_run.h"
#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"

namespace lmdbio::figures {

// Enqueues work on a stream, and returns.
using Enqueue = std::function<Status()>;

// How often work is enqueued in a row, at most.
inline constexpr int kRepeatsMax = 256;

// Waits until the stream is done, but not for ever.
// Errors: kInternal  it is not done in 20 s; and as DeviceStream::IsDone
Status AwaitDone(const device::DeviceStream& stream);

class DeviceTimer {
 public:
  // Errors: as Device::MakeStream, Device::MakeEvent
  static Result<DeviceTimer> Make(device::Device& device);

  // The stream that all work goes to.
  device::DeviceStream& stream() { return stream_; }

  // Seconds on the device that the work takes once, if it is enqueued `repeats` times.
  // Errors: as `enqueue`, AwaitDone
  Result<double> Time(const Enqueue& enqueue, int repeats);
  // How often the work has to be enqueued so that it takes `seconds`: 1 to kRepeatsMax. Enqueues
  // it, so that memory is touched and clocks rise.
  // Errors: as Time
  Result<int> RepeatsFor(const Enqueue& enqueue, double seconds);

 private:
  DeviceTimer(device::DeviceStream stream, device::DeviceEvent begin, device::DeviceEvent end)
      : stream_(std::move(stream)), begin_(std::move(begin)), end_(std::move(end)) {}

  device::DeviceStream stream_;
  device::DeviceEvent begin_;
  device::DeviceEvent end_;
};

// Two kinds of work, timed in turns, so that a change of the clocks meets both.
struct TurnTimes {
  std::vector<double> first;   // seconds
  std::vector<double> second;  // as many

  // first / second * factor, of each turn
  std::vector<double> Ratios(double factor = 1) const;
};

// Errors: as DeviceTimer::Time
Result<TurnTimes> TimeInTurns(DeviceTimer& timer, const FigureSettings& options,
                              const Enqueue& first, const Enqueue& second);

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_DEVICE_TIMER_H_
