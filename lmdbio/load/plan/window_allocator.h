// lmdbio/load/plan/window_allocator.h - places for slots in a ring of bytes, known before any is
// free.
//
// Every reader computes the same places from the same sizes, in slot order, without asking anybody:
// a place is not "free" or "taken", it comes with the number of slots that must have been let go
// before it may be written to. Slots are let go in order.
//
//   0                                   wrap_bytes        capacity_bytes
//   | slot 3 | slot 4 |.....| slot 1 | slot 2 |.................|
//              next ->
//
// The ring wraps at `wrap_bytes`, so that little memory is touched as long as little is needed;
// only a slot that does not fit there uses more.
#ifndef LMDBIO_LOAD_PLAN_WINDOW_ALLOCATOR_H_
#define LMDBIO_LOAD_PLAN_WINDOW_ALLOCATOR_H_

#include <cstdint>
#include <deque>
#include <optional>

namespace lmdbio::load {

struct WindowReservation {
  uint64_t at = 0;          // bytes from the start of the ring
  uint64_t free_after = 0;  // this many slots, from the first on, must have been let go
};

class WindowAllocator {
 public:
  // Requires: wrap_bytes <= capacity_bytes
  WindowAllocator(uint64_t wrap_bytes, uint64_t capacity_bytes)
      : wrap_bytes_(wrap_bytes), capacity_bytes_(capacity_bytes) {}

  // From now on more of the ring is used.
  // Requires: wrap_bytes <= capacity_bytes
  void WrapAt(uint64_t wrap_bytes) { wrap_bytes_ = wrap_bytes; }

  // The place of the next slot; nothing if it is larger than the ring.
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
  std::deque<Taken> taken_;  // that no later place has asked to be let go, oldest first
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_WINDOW_ALLOCATOR_H_
