#include "lmdbio/sync/over_device_wire/device_wire_values.h"

#include <algorithm>
#include <chrono>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/over_device/event_wait.h"

namespace lmdbio::sync {

using device::DeviceSpan;
using Clock = std::chrono::steady_clock;

// The begin is behind all work of earlier calls, which may use the memory of any slot.
Status DeviceWireValues::Begin() {
  parts_.slots.Divide(lanes_.slot_count());
  LMDBIO_TRY_VOID(stream_.Record(parts_.slots.begin()));
  written_ = &parts_.slots.begin();
  return {};
}

DeviceWireValues::OutLane& DeviceWireValues::LaneTo(int to) {
  const auto [place, is_new] = out_.try_emplace(to);
  if (is_new) {
    place->second.first_slot = used_slots_;
    used_slots_ += lanes_.depth;
    LMDBIO_CHECK(used_slots_ <= lanes_.slot_count());
  }
  return place->second;
}

DeviceWireValues::InLane& DeviceWireValues::LaneFrom(int from) {
  const auto [place, is_new] = in_.try_emplace(from);
  if (is_new) {
    place->second.first_slot = used_slots_;
    used_slots_ += lanes_.depth;
    LMDBIO_CHECK(used_slots_ <= lanes_.slot_count());
  }
  return place->second;
}

Status DeviceWireValues::StartSend(int to, const ValueRange& chunk) {
  OutLane& lane = LaneTo(to);
  lane.chunks.push_back(chunk);
  ++lane.begun;
  return Advance(to, lane);
}

Status DeviceWireValues::Expect(int from, const ValueRange& chunk) {
  InLane& lane = LaneFrom(from);
  lane.chunks.push_back(chunk);
  ++lane.begun;
  return Advance(from, lane);
}

// --- Progress ----------------------------------------------------------------------------------

Status DeviceWireValues::StartCopy(OutLane& lane) {
  const ValueRange& chunk = lane.chunks[lane.copied - lane.left];
  const uint64_t slot = SlotOf(lane.first_slot, lane.copied++);
  if (chunk.size_bytes == 0) return {};
  device::DeviceStream& out = parts_.slots.out();
  if (written_ != nullptr) LMDBIO_TRY_VOID(out.Await(*written_));
  written_ = nullptr;
  LMDBIO_TRY_VOID(out.CopyOut(parts_.slots.pinned(), parts_.slots.OffsetOf(slot, AddressOf(chunk)),
                              AddressOf(chunk), chunk.size_bytes));
  return out.Record(parts_.slots.event(slot));
}

Status DeviceWireValues::Advance(int to, OutLane& lane) {
  while (lane.sent < lane.left) {
    LMDBIO_TRY(const bool is_sent, parts_.wire.IsSent(to));
    if (!is_sent) break;
    LMDBIO_TRY_VOID(parts_.wire.AwaitSend(to));
    ++lane.sent;
  }
  while (lane.copied < lane.begun && HasRoom(lane)) LMDBIO_TRY_VOID(StartCopy(lane));
  while (lane.left < lane.copied) {
    const uint64_t slot = SlotOf(lane.first_slot, lane.left);
    LMDBIO_TRY(const bool is_copied, parts_.slots.event(slot).IsDone());
    if (!is_copied) break;
    LMDBIO_TRY_VOID(parts_.wire.StartSend(to, BytesIn(slot, lane.chunks.front())));
    lane.chunks.pop_front();
    ++lane.left;
  }
  return {};
}

// A slot is filled again when the GPU has read it.
Status DeviceWireValues::Advance(int from, InLane& lane) {
  if (!is_begun_) {
    LMDBIO_TRY(is_begun_, parts_.slots.begin().IsDone());
  }
  while (is_begun_ && lane.posted < lane.begun && HasRoom(lane)) {
    const uint64_t slot = SlotOf(lane.first_slot, lane.posted);
    LMDBIO_TRY(const bool is_read, parts_.slots.event(slot).IsDone());
    if (!is_read) break;
    LMDBIO_TRY_VOID(parts_.wire.StartReceive(from, BytesIn(slot, lane.chunks.front())));
    lane.chunks.pop_front();
    ++lane.posted;
  }
  return {};
}

Status DeviceWireValues::AdvanceAll() {
  for (auto& [from, lane] : in_) LMDBIO_TRY_VOID(Advance(from, lane));
  for (auto& [to, lane] : out_) LMDBIO_TRY_VOID(Advance(to, lane));
  return {};
}

bool DeviceWireValues::HasWork() const {
  const auto sends = [](const auto& entry) { return entry.second.left < entry.second.begun; };
  const auto receives = [this](const auto& entry) {
    return entry.second.posted < entry.second.begun && HasRoom(entry.second);
  };
  return std::ranges::any_of(out_, sends) || std::ranges::any_of(in_, receives);
}

Status DeviceWireValues::AdvanceUntil(const std::function<Result<bool>()>& is_done) {
  const auto is_over = [&]() -> Result<bool> {
    LMDBIO_TRY_VOID(AdvanceAll());
    if (!HasWork()) return true;
    return is_done();
  };
  LMDBIO_TRY_VOID(LookUntil(is_over, Clock::time_point::max(), parts_.check));
  return {};
}

// --- Ends --------------------------------------------------------------------------------------

Status DeviceWireValues::AwaitSend(int to) {
  OutLane& lane = LaneTo(to);
  LMDBIO_TRY_VOID(AdvanceUntil([&]() -> Result<bool> { return lane.sent > lane.awaited; }));
  if (lane.sent == lane.awaited) {
    LMDBIO_TRY_VOID(parts_.wire.AwaitSend(to));
    ++lane.sent;
  }
  ++lane.awaited;
  return {};
}

Status DeviceWireValues::AwaitArrival(int from) {
  const InLane& lane = LaneFrom(from);
  LMDBIO_TRY_VOID(AdvanceUntil([&]() -> Result<bool> {
    if (lane.posted == lane.finished) return false;
    return parts_.wire.IsReceived(from);
  }));
  return parts_.wire.AwaitReceive(from);
}

Status DeviceWireValues::FinishRead(InLane& lane) {
  device::DeviceEvent& event = parts_.slots.event(SlotOf(lane.first_slot, lane.finished++));
  written_ = &event;
  return stream_.Record(event);
}

Status DeviceWireValues::Launch(const ValueRange& chunk, std::span<const DeviceSpan> sources,
                                std::span<const DeviceSpan> targets, const Reduction& reduction) {
  return parts_.kernels.Launch(stream_, {.sources = sources,
                                         .targets = targets,
                                         .count = chunk.size_bytes / ElementBytes(pieces_.type),
                                         .type = pieces_.type,
                                         .reduction = reduction});
}

// A chunk that is passed on is copied out of the values again. The kernel that reduces cannot copy,
// because it changes the bits of a NaN.
Status DeviceWireValues::FinishStore(int from, const ValueRange& chunk, int forward_to) {
  LMDBIO_TRY_VOID(AwaitArrival(from));
  InLane& lane = LaneFrom(from);
  const uint64_t slot = SlotOf(lane.first_slot, lane.finished);
  LMDBIO_TRY_VOID(stream_.CopyIn(AddressOf(chunk), parts_.slots.pinned(),
                                 parts_.slots.OffsetOf(slot, AddressOf(chunk)), chunk.size_bytes));
  LMDBIO_TRY_VOID(FinishRead(lane));
  return forward_to != kNobody ? StartSend(forward_to, chunk) : Status();
}

// If the slot of the next send is free, the kernel writes it. No earlier send waits for it then:
// AwaitArrival has begun the copies of all for which there is room.
Status DeviceWireValues::FinishReduce(int from, uint64_t /*turn*/, const ValueRange& chunk,
                                      const Reduction& reduction, int forward_to) {
  LMDBIO_TRY_VOID(AwaitArrival(from));
  InLane& lane = LaneFrom(from);
  const DeviceSpan own = {AddressOf(chunk), chunk.size_bytes};
  const DeviceSpan received = SpanIn(SlotOf(lane.first_slot, lane.finished), chunk);
  const std::vector<DeviceSpan> sources = {own, received};
  std::vector<DeviceSpan> targets = {own};
  OutLane* const next = forward_to != kNobody ? &LaneTo(forward_to) : nullptr;
  const bool writes_slot = next != nullptr && HasRoom(*next);
  if (writes_slot) targets.push_back(SpanIn(SlotOf(next->first_slot, next->copied), chunk));
  LMDBIO_TRY_VOID(Launch(chunk, sources, targets, reduction));
  LMDBIO_TRY_VOID(FinishRead(lane));
  if (next == nullptr) return {};
  if (!writes_slot) return StartSend(forward_to, chunk);
  LMDBIO_TRY_VOID(stream_.Record(parts_.slots.event(SlotOf(next->first_slot, next->copied))));
  next->chunks.push_back(chunk);
  ++next->begun;
  ++next->copied;
  return {};
}

Status DeviceWireValues::FinishReduceOfAll(uint64_t /*turn*/, const ValueRange& chunk,
                                           const Reduction& reduction) {
  const DeviceSpan own = {AddressOf(chunk), chunk.size_bytes};
  std::vector<DeviceSpan> sources;
  for (int from = 0; from < size(); ++from) {
    if (from == rank()) {
      sources.push_back(own);
      continue;
    }
    LMDBIO_TRY_VOID(AwaitArrival(from));
    const InLane& lane = LaneFrom(from);
    sources.push_back(SpanIn(SlotOf(lane.first_slot, lane.finished), chunk));
  }
  LMDBIO_TRY_VOID(Launch(chunk, sources, std::span(&own, 1), reduction));
  for (int from = 0; from < size(); ++from) {
    if (from != rank()) LMDBIO_TRY_VOID(FinishRead(LaneFrom(from)));
  }
  return {};
}

}  // namespace lmdbio::sync
