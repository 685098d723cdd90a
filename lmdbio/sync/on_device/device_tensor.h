// lmdbio/sync/on_device/device_tensor.h - a tensor of the program in the memory of a GPU.
#ifndef LMDBIO_SYNC_ON_DEVICE_DEVICE_TENSOR_H_
#define LMDBIO_SYNC_ON_DEVICE_DEVICE_TENSOR_H_

#include "lmdbio/device/device_address.h"
#include "lmdbio/device/driver_table.h"

namespace lmdbio::sync {

// Takes the place of Submission::input and Submission::output, with the same meaning.
struct DeviceTensor {
  device::DeviceAddress input;   // 0: none
  device::DeviceAddress output;  // 0: none; the input, or apart from it
  // When the work that is on it now is done, the input has its values and the output may be
  // written. Null: the default stream.
  device::StreamHandle stream = nullptr;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_ON_DEVICE_DEVICE_TENSOR_H_
