#include "lmdbio/load/plan/window_allocator.h"

#include <algorithm>

namespace lmdbio::load {

std::optional<WindowReservation> WindowAllocator::Allocate(uint64_t size_bytes) {
  if (size_bytes > capacity_bytes_) return std::nullopt;
  if (next_at_ + size_bytes > wrap_bytes_) next_at_ = 0;
  const Taken place{next_slot_++, next_at_, next_at_ + size_bytes};
  // Slots are let go in order, so the newest one in the way decides.
  const auto in_the_way = [&](const Taken& other) {
    return other.begin < place.end && place.begin < other.end;
  };
  const auto newest = std::find_if(taken_.rbegin(), taken_.rend(), in_the_way);
  if (newest != taken_.rend()) {
    free_after_ = std::max(free_after_, newest->slot + 1);
    while (!taken_.empty() && taken_.front().slot < free_after_) taken_.pop_front();
  }
  taken_.push_back(place);
  next_at_ = place.end;
  return WindowReservation{place.begin, free_after_};
}

}  // namespace lmdbio::load
