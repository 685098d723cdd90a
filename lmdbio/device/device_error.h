// lmdbio/device/device_error.h - a code of the driver as an Error.
#ifndef LMDBIO_DEVICE_DEVICE_ERROR_H_
#define LMDBIO_DEVICE_DEVICE_ERROR_H_

#include <string>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/device/driver_table.h"

namespace lmdbio::device {

// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)": the driver's own name and text, or "code N" if the
// driver knows none.
std::string DriverReason(const DriverTable& driver, DriverCode code);

// "WHAT: CUDA_ERROR_...", with the ErrorCode that tells the caller what it can do:
// kResourceExhausted, kUnsupported, kPermission, or kInternal for all others.
// code  not kSuccess
Error DriverError(const DriverTable& driver, DriverCode code, std::string_view what);

// Why a GPU may have no access to the memory of another one, for errors.
inline constexpr const char* kNoPeerReasons =
    "the host has no NVLink or PCIe route between the two that they can use; a virtual machine, "
    "the IOMMU or MIG forbids it; or the GPU has access to too many others";

// Whether the context is lost with this code. Every later call on it fails, and only a new process
// can use the device again.
bool EndsContext(DriverCode code);

// kUnsupported, with the remedy. A driver does not survive fork(): its calls fail in the child, and
// some disturb the parent. So objects of a device refuse their calls in a child, and their
// destructors do nothing there.
Error ForkedError();

}  // namespace lmdbio::device
#endif  // LMDBIO_DEVICE_DEVICE_ERROR_H_
