// tests/gpu/device_check.h - a check of the device path on any driver, and its outcome.
//
// Source: docs/device_bundle.md
#ifndef LMDBIO_TESTS_GPU_DEVICE_CHECK_H_
#define LMDBIO_TESTS_GPU_DEVICE_CHECK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/device/device.h"
#include "tests/support/good.h"
#include "tests/support/random.h"

namespace lmdbio::test {

enum class CheckState { kPassed, kFailed, kLeftOut };

struct CheckOutcome {
  CheckState state = CheckState::kPassed;
  std::string note = {};  // of kFailed and kLeftOut: the reason
};
inline CheckOutcome Passed(std::string note = "") { return {CheckState::kPassed, std::move(note)}; }
inline CheckOutcome Failed(std::string why) { return {CheckState::kFailed, std::move(why)}; }
inline CheckOutcome LeftOut(std::string why) { return {CheckState::kLeftOut, std::move(why)}; }

// The options of a run.
struct CheckScene {
  int ordinal = 0;
  uint64_t seed = 1;
  bool is_quick = false;  // less of everything, not fewer checks

  uint64_t Of(uint64_t usual, uint64_t quick) const { return is_quick ? quick : usual; }
  // Throws if the driver or the GPU cannot be opened.
  std::shared_ptr<device::Device> Open() const {
    return Good(device::Device::Open(ordinal, *Good(device::SystemDriver())));
  }
};

struct DeviceCheck {
  std::string id;    // "C1"
  std::string name;  // unique among those of the id
  double seconds_max = 60;
  // Runs in a process of its own, which has not opened the driver. May throw: then it has failed.
  std::function<CheckOutcome(const CheckScene& scene)> run;
};
using DeviceChecks = std::vector<DeviceCheck>;

// C1, C2: kernels against the arithmetic of the host.
DeviceChecks KernelChecks();
// C3: the synchronizer with ranks that share a GPU.
DeviceChecks SyncChecks();
// C4: ranks that are killed or stopped at any moment.
DeviceChecks EndChecks();
// C5: memory that is freed, and given out again at its address.
DeviceChecks PointerChecks();
// C6: rows of batches.
DeviceChecks FeedChecks();

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_GPU_DEVICE_CHECK_H_
