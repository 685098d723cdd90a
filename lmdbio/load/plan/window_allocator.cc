#include "lmdbio/load/plan/window_allocator.h"

#include <algorithm>

namespace lmdbio::load {

// The next slot goes behind the last one, or to the start if it does not fit there. It may be
// written once every slot that overlaps it was released. Slots are released in order, so the newest
// of these decides, and all older ones can be forgotten.
std::optional<WindowReservation> WindowAllocator::Allocate(uint64_t size_bytes) {
  if (size_bytes > capacity_bytes_) return std::nullopt;
  if (next_at_ + size_bytes > wrap_bytes_) next_at_ = 0;
  const Taken mine{next_slot_++, next_at_, next_at_ + size_bytes};
  const auto overlaps = [&](const Taken& other) {
    return other.begin < mine.end && mine.begin < other.end;
  };
  const auto newest = std::find_if(taken_.rbegin(), taken_.rend(), overlaps);
  if (newest != taken_.rend()) {
    free_after_ = std::max(free_after_, newest->slot + 1);
    while (!taken_.empty() && taken_.front().slot < free_after_) taken_.pop_front();
  }
  taken_.push_back(mine);
  next_at_ = mine.end;
  return WindowReservation{mine.begin, free_after_};
}

}  // namespace lmdbio::load
