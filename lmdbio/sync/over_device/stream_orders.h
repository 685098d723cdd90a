// lmdbio/sync/over_device/stream_orders.h - the orders that MakeStreamOrder chooses from.
//
// Only for stream_order.cc.
#ifndef LMDBIO_SYNC_OVER_DEVICE_STREAM_ORDERS_H_
#define LMDBIO_SYNC_OVER_DEVICE_STREAM_ORDERS_H_

#include <functional>
#include <memory>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/over_device/stream_order.h"

namespace lmdbio::sync {

// Each is collective over `group`, and fails on every rank if on one.

// Errors: as Device::MakeEvent, ranks::Agree
Result<std::unique_ptr<StreamOrder>> MakeHostOrder(ranks::Group& group, device::Device& gpu,
                                                   std::function<Status()> check);
// Errors: kUnsupported  no events between these processes
//         and as Device::MakeEvent, ranks::Agree
Result<std::unique_ptr<StreamOrder>> MakeEventOrder(ranks::Group& group, device::Device& gpu);
// Errors: kUnsupported  no marks
//         and as ranks::Group::AllocateShared, Device::Pin, ranks::Agree
Result<std::unique_ptr<StreamOrder>> MakeMarkOrder(ranks::Group& group, device::Device& gpu);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_STREAM_ORDERS_H_
