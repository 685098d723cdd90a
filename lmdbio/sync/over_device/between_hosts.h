// lmdbio/sync/over_device/between_hosts.h - reduces values on the GPUs of ranks that are on
// different hosts.
//
// Source: docs/device_wires.md.
#ifndef LMDBIO_SYNC_OVER_DEVICE_BETWEEN_HOSTS_H_
#define LMDBIO_SYNC_OVER_DEVICE_BETWEEN_HOSTS_H_

#include <cstdint>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device_address.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/sync/reduce/data_type.h"

namespace lmdbio::sync {

// Values in the memory of a GPU.
struct DeviceArray {
  device::DeviceAddress begin;
  uint64_t count = 0;  // elements
  DataType type = DataType::kFloat32;

  uint64_t size_bytes() const { return count * ElementBytes(type); }
};

// Threads: one at a time, except Stop.
class BetweenHosts {
 public:
  virtual ~BetweenHosts() = default;

  // Collective, and all ranks make the same call: the values of every rank become the reduction of
  // all of them, scaled once. The same bits on every rank, and in every run with the same values,
  // ranks and options. Returns when what is left of the work is enqueued on `stream`: it waits for
  // no other rank.
  // values  [any number] behind the work that is on `stream`
  // Errors: kPeerFailed  a rank is gone, silent for too long, or has called Stop; names it
  //         kInternal    the driver fails, by its own name for the reason; MPI failed
  //         After an error only Stop and the destructor may be called.
  virtual Status AllReduce(const DeviceArray& values, const Reduction& reduction,
                           device::DeviceStream& stream) = 0;

  // Ends all calls of this rank and of its peers, now and later, with kPeerFailed and this message.
  // Threads: any
  virtual void Stop(const Error& why) = 0;

  // The algorithms, as lines of text.
  virtual std::string Description() const = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_BETWEEN_HOSTS_H_
