// lmdbio/kernels/device_kernels.h - the kernels of one device.
#ifndef LMDBIO_KERNELS_DEVICE_KERNELS_H_
#define LMDBIO_KERNELS_DEVICE_KERNELS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/device/driver_table.h"
#include "lmdbio/kernels/kernel_image.h"
#include "lmdbio/kernels/kernel_work.h"

namespace lmdbio::kernels {

// Launch enqueues work on a stream of the device, and returns. Work is checked before: if it is
// wrong, nothing is enqueued. Work on 0 elements or bytes is no launch.
//
// Errors of Launch: kInvalidArgument  the work, as Plan... (kernel_plans.h)
//                   and as PrimaryContext::Run
// Lifetime: until the work is done
// Threads:  any
// Source:   Awan et al. V-A; docs/device_kernels.md
class DeviceKernels {
 public:
  // Loads all kernels, because a kernel that is loaded by its first launch waits for all work of
  // the device. Waits for the device itself, so it belongs in a start.
  // Errors: kUnsupported  this library was built without kernels; or they are not for this device,
  //                       or too new for the driver: says what is needed
  //         and as PrimaryContext::Run
  static Result<std::unique_ptr<DeviceKernels>> Load(device::Device& device,
                                                     const KernelImage& image = BuiltInKernels());

  // The machine code is unloaded.
  ~DeviceKernels();
  DeviceKernels(const DeviceKernels&) = delete;
  DeviceKernels& operator=(const DeviceKernels&) = delete;

  // One launch.
  // Errors: see above
  Status Launch(device::DeviceStream& stream, const ReduceWork& work) const;
  // One launch for each kPackPartsMax tensors.
  // Errors: see above
  Status Launch(device::DeviceStream& stream, const PackWork& work) const;
  // One launch. Also writes the list of pieces.
  // Errors: see above
  Status Launch(device::DeviceStream& stream, const GatherWork& work) const;

 private:
  class LoadedModule;
  using Functions = std::map<std::string, device::FunctionHandle, std::less<>>;

  DeviceKernels(int multiprocessors, std::unique_ptr<LoadedModule> loaded, Functions functions);

  // Launches each kernel without work, and waits.
  Status LaunchAll(device::Device& device) const;
  device::FunctionHandle FunctionOf(const std::string& name) const;

  const int multiprocessors_;
  const std::unique_ptr<const LoadedModule> module_;
  const Functions functions_;
};

}  // namespace lmdbio::kernels
#endif  // LMDBIO_KERNELS_DEVICE_KERNELS_H_
