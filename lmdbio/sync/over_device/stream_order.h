// lmdbio/sync/over_device/stream_order.h - how the streams of ranks wait for each other.
//
// In each call a rank announces that the values in its arena are ready, and a leader that its part
// is done. A stream awaits announcements of other ranks. Ranks meet on the host in between, so an
// announcement is made before another rank awaits it.
//
// Source: docs/device_collectives.md "Orders".
#ifndef LMDBIO_SYNC_OVER_DEVICE_STREAM_ORDER_H_
#define LMDBIO_SYNC_OVER_DEVICE_STREAM_ORDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lmdbio/base/status.h"
#include "lmdbio/device/device.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/ranks/group/group.h"
#include "lmdbio/sync/over_device/result_state.h"

namespace lmdbio::sync {

enum class OrderKind : uint8_t { kHost, kEvent, kMark };
std::string_view NameOf(OrderKind kind);
// Errors: kInvalidArgument  no order has this name; the message lists the names
Result<OrderKind> ParseOrder(std::string_view name);

enum class OrderPoint : uint8_t { kReady, kDone };

// Results are void after a rank has called Poison. In kEvent that is known of this rank alone.
// Threads: one at a time, except Poison and is_void.
class StreamOrder : public ResultState {
 public:
  virtual OrderKind kind() const = 0;

  // The point is behind all work that was enqueued on `stream` before.
  // kHost waits until that work is done; the others only enqueue.
  // Errors: those of the check of MakeStreamOrder, and as DeviceStream::Record, Raise
  virtual Status Announce(OrderPoint point, device::DeviceStream& stream) = 0;

  // Work that is enqueued on `stream` later follows the last announcement of each of these ranks.
  // Requires: they have announced it, and met this rank on the host since
  // ranks  may hold this rank, which needs no wait
  // Errors: as DeviceStream::Await, AwaitAll
  virtual Status Await(OrderPoint point, std::span<const int> ranks,
                       device::DeviceStream& stream) = 0;

  // After a failure of a rank: no stream waits for an announcement any more, as far as the order
  // can do that. Threads: any
  virtual void Poison() = 0;

  // Gives back what other ranks have made, before those ranks free it.
  virtual void CloseOthers() = 0;
};

struct StreamOrderChoice {
  std::unique_ptr<StreamOrder> order;
  std::string note;  // why it is not the wanted one; "": it is
};

// Collective over `group`, whose ranks share memory. If a rank cannot have the wanted order, all
// get kHost, and the note says which rank, and why.
// wanted  the same on every rank
// check   is called in waits of the host; an error ends them. Must outlive the order
// Errors: as ranks::Group::AllGather, AllocateShared, Device::MakeEvent
Result<StreamOrderChoice> MakeStreamOrder(ranks::Group& group, device::Device& gpu,
                                          OrderKind wanted, std::function<Status()> check);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_STREAM_ORDER_H_
