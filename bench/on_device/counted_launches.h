// bench/on_device/counted_launches.h - a device whose launches of kernels are counted where the
// library calls the driver.
#ifndef LMDBIO_BENCH_ON_DEVICE_COUNTED_LAUNCHES_H_
#define LMDBIO_BENCH_ON_DEVICE_COUNTED_LAUNCHES_H_

#include <cstdint>
#include <memory>

#include "bench/on_device/figure_run.h"
#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/driver_table.h"

namespace lmdbio::figures {

// Outlives all objects of its device.
class CountedLaunches {
 public:
  // The GPU of the run once more, by a table of the driver's functions with one that counts.
  // Errors: as Device::Open
  static Result<std::unique_ptr<CountedLaunches>> Open(const FigureRun& run);

  device::Device& device() { return *device_; }
  // Launches of this process by all such devices.
  static uint64_t count();

 private:
  CountedLaunches() = default;

  device::DriverTable table_;
  std::shared_ptr<device::Device> device_;
};

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_COUNTED_LAUNCHES_H_
