// bench/device/machine_state.h - the state of the machine that figures of a device depend on.
#ifndef LMDBIO_BENCH_DEVICE_MACHINE_STATE_H_
#define LMDBIO_BENCH_DEVICE_MACHINE_STATE_H_

#include <nlohmann/json.hpp>

namespace lmdbio::probe {

// The kernel's module of the driver, the limit of locked memory, visible GPUs, the processors that
// this process may use, and clocks, limits and modes by nvidia-smi, if that is there.
// Cost: at most 10 s, if nvidia-smi hangs
nlohmann::ordered_json DescribeDeviceState();

}  // namespace lmdbio::probe
#endif  // LMDBIO_BENCH_DEVICE_MACHINE_STATE_H_
