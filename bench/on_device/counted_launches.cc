#include "bench/on_device/counted_launches.h"

#include <atomic>

namespace lmdbio::figures {
namespace {

// Functions of the driver take no data of the caller.
std::atomic<uint64_t> g_count = 0;
decltype(device::DriverTable::LaunchKernel) g_launch = nullptr;

device::DriverCode CountAndLaunch(device::FunctionHandle function, unsigned blocks_x,
                                  unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                                  unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                                  device::StreamHandle stream, void** parameters, void** extra) {
  ++g_count;
  return g_launch(function, blocks_x, blocks_y, blocks_z, threads_x, threads_y, threads_z,
                  shared_bytes, stream, parameters, extra);
}

}  // namespace

Result<std::unique_ptr<CountedLaunches>> CountedLaunches::Open(const FigureRun& run) {
  std::unique_ptr<CountedLaunches> opened(new CountedLaunches());
  opened->table_ = run.driver();
  g_launch = run.driver().LaunchKernel;
  opened->table_.LaunchKernel = &CountAndLaunch;
  LMDBIO_TRY(opened->device_, device::Device::Open(run.options().ordinal, opened->table_));
  return opened;
}

uint64_t CountedLaunches::count() { return g_count.load(); }

}  // namespace lmdbio::figures
