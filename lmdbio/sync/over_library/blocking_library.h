// lmdbio/sync/over_library/blocking_library.h - a library that reduces values on GPUs, by calls
// that return when all ranks have made them.
//
// Source: docs/device_mpi.md.
#ifndef LMDBIO_SYNC_OVER_LIBRARY_BLOCKING_LIBRARY_H_
#define LMDBIO_SYNC_OVER_LIBRARY_BLOCKING_LIBRARY_H_

#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/sync/over_device/between_hosts.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// Threads: one at a time. The context of the GPU is current in the thread of each call.
class BlockingLibrary {
 public:
  virtual ~BlockingLibrary() = default;

  // Whether AllReduce takes such values.
  virtual bool Reduces(DataType type, ReduceOp op) const = 0;

  // Collective. The values of every rank become the reduction of all of them. They are in memory
  // of the GPU when this returns. If a rank is gone, it may never return.
  // Requires: Reduces; no work of the GPU uses the values
  // Errors: kInternal  the library fails, with its text for the reason
  virtual Status AllReduce(const DeviceArray& values, ReduceOp op) = 0;
  // The same for bytes, which become those of rank `root`.
  // Errors: as AllReduce
  virtual Status Broadcast(const device::DeviceSpan& bytes, int root) = 0;

  virtual std::string_view name() const = 0;
  // The values that Reduces refuses, as words.
  virtual std::string_view refused_values() const = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_LIBRARY_BLOCKING_LIBRARY_H_
