// lmdbio/load/plan/window_allocator.h - reservations of window memory for slots.
//
// Every reader of a host computes the same reservations from the same sizes, in the order of the
// slots, so no message is needed. A reservation does not say whether its memory is free. It comes
// with the number of slots that the ranks must release before the memory may be written. Slots are
// released in order, so one number is enough.
//
//   0                                   wrap_bytes        capacity_bytes
//   | slot 3 | slot 4 |.....| slot 1 | slot 2 |.................|
//              next ->
//
// Reservations start again from 0 at `wrap_bytes`, so that a stream of small slots touches little
// memory. Only a slot that does not fit below `wrap_bytes` uses more.
#ifndef LMDBIO_LOAD_PLAN_WINDOW_ALLOCATOR_H_
#define LMDBIO_LOAD_PLAN_WINDOW_ALLOCATOR_H_

#include <cstdint>
#include <deque>
#include <optional>

namespace lmdbio::load {

struct WindowReservation {
  uint64_t at = 0;          // bytes from the start of the window memory
  uint64_t free_after = 0;  // this many slots, from the first on, must have been released
};

class WindowAllocator {
 public:
  // Requires: wrap_bytes <= capacity_bytes
  WindowAllocator(uint64_t wrap_bytes, uint64_t capacity_bytes)
      : wrap_bytes_(wrap_bytes), capacity_bytes_(capacity_bytes) {}

  // Sets another limit for the reservations from now on.
  // Requires: wrap_bytes <= capacity_bytes
  void WrapAt(uint64_t wrap_bytes) { wrap_bytes_ = wrap_bytes; }

  // The reservation of the next slot; nothing if the slot is larger than the capacity.
  std::optional<WindowReservation> Allocate(uint64_t size_bytes);

 private:
  struct Taken {
    uint64_t slot = 0;
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  uint64_t wrap_bytes_;
  uint64_t capacity_bytes_;
  uint64_t next_slot_ = 0;
  uint64_t next_at_ = 0;
  uint64_t free_after_ = 0;
  // Reservations that no later one overlaps, the oldest first.
  std::deque<Taken> taken_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_WINDOW_ALLOCATOR_H_
