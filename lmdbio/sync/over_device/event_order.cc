// Streams record events that all ranks have opened, and wait for them. Each rank has one event for
// each point. A wait means the last record before it, so a rank must not record a point again
// before all others have enqueued their waits for it. The two meetings of a call see to that:
//
//   ready  A rank records the next one when it has left the call. Leaders enqueue their waits
//          before the second meeting, which the rank has passed by then. If the call is declined,
//          there is no second meeting, and no wait either.
//   done   A leader records the next one after the first meeting of the next call. A rank comes to
//          that meeting when it has enqueued its waits for this one.
#include <array>
#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/kept_memory.h"
#include "lmdbio/device/device_event.h"
#include "lmdbio/sync/over_device/rank_agreement.h"
#include "lmdbio/sync/over_device/stream_orders.h"

namespace lmdbio::sync {
namespace {

using device::DeviceEvent;
using device::DeviceEventKind;
using device::DeviceStream;
using device::EventTicket;

// Of one rank: an event, or its ticket, for each OrderPoint.
using RankEvents = std::array<DeviceEvent, 2>;
using RankTickets = std::array<EventTicket, 2>;

class EventOrder final : public StreamOrder {
 public:
  EventOrder(int rank, RankEvents own) : rank_(rank), own_(std::move(own)) {}

  // Errors: as Device::Import, with the number of the owner
  Status OpenOthers(device::Device& gpu, const std::vector<RankTickets>& tickets) {
    for (size_t rank = 0; rank < tickets.size(); ++rank) {
      if (static_cast<int>(rank) == rank_) continue;
      auto opened = Open(gpu, tickets[rank]);
      if (!opened) {
        return Fail(std::move(opened).error().Within(fmt::format("the events of rank {}", rank)));
      }
      others_.push_back(*std::move(opened));
    }
    return {};
  }

  OrderKind kind() const override { return OrderKind::kEvent; }

  Status Announce(OrderPoint point, DeviceStream& stream) override {
    return stream.Record(own_[static_cast<size_t>(point)]);
  }

  Status Await(OrderPoint point, std::span<const int> ranks, DeviceStream& stream) override {
    for (const int rank : ranks) {
      if (rank == rank_) continue;
      const RankEvents& theirs = others_[static_cast<size_t>(rank < rank_ ? rank : rank - 1)];
      LMDBIO_TRY_VOID(stream.Await(theirs[static_cast<size_t>(point)]));
    }
    return {};
  }

  // Nothing but its own work completes a record, as far as is known.
  void Poison() override { is_void_.store(true); }
  bool is_void() const override { return is_void_.load(); }

  void CloseOthers() override { others_.clear(); }

 private:
  static Result<RankEvents> Open(device::Device& gpu, const RankTickets& tickets) {
    LMDBIO_TRY(DeviceEvent ready, gpu.Import(tickets[0]));
    LMDBIO_TRY(DeviceEvent done, gpu.Import(tickets[1]));
    return RankEvents{std::move(ready), std::move(done)};
  }

  const int rank_;
  RankEvents own_;
  std::vector<RankEvents> others_;  // by rank
  std::atomic<bool> is_void_{false};
};

Result<RankEvents> MakeEvents(device::Device& gpu) {
  LMDBIO_TRY(DeviceEvent ready, gpu.MakeEvent(DeviceEventKind::kShared));
  LMDBIO_TRY(DeviceEvent done, gpu.MakeEvent(DeviceEventKind::kShared));
  return RankEvents{std::move(ready), std::move(done)};
}

Result<RankTickets> TicketsOf(device::Device& gpu, const RankEvents& events) {
  LMDBIO_TRY(const EventTicket ready, gpu.Share(events[0]));
  LMDBIO_TRY(const EventTicket done, gpu.Share(events[1]));
  return RankTickets{ready, done};
}

}  // namespace

Result<std::unique_ptr<StreamOrder>> MakeEventOrder(ranks::Group& group, device::Device& gpu) {
  LMDBIO_TRY(RankEvents own, ForAllOrNone(group, MakeEvents(gpu)));
  LMDBIO_TRY(const RankTickets mine, ForAllOrNone(group, TicketsOf(gpu, own)));
  LMDBIO_TRY(const std::vector<RankTickets> tickets, GatherFacts(group, mine));
  auto order = std::make_unique<EventOrder>(group.rank(), std::move(own));
  Status opened = AgreeOnSupport(group, order->OpenOthers(gpu, tickets));
  if (opened) return order;
  order->CloseOthers();
  // The owner destroys an event after all others have closed it.
  if (!group.Barrier()) KeepForever(std::move(order));
  return Fail(std::move(opened).error());
}

}  // namespace lmdbio::sync
