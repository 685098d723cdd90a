// lmdbio/load/plan/slot_head.h - the description of a slot that ranks read beside its bytes.
//
// Source: docs/loader.md "The window".
#ifndef LMDBIO_LOAD_PLAN_SLOT_HEAD_H_
#define LMDBIO_LOAD_PLAN_SLOT_HEAD_H_

#include <cstdint>

namespace lmdbio::load {

// A record in a slot. Its offsets count from the base that the slot's head names.
struct RecordEntry {
  uint64_t position = 0;  // of its sample in the global sequence
  uint64_t value_at = 0;
  uint64_t key_at = 0;
  uint32_t value_bytes = 0;
  uint16_t key_bytes = 0;
  // The value is in overflow pages, and the rank has to check the header before it.
  bool has_unchecked_head = false;
};

// The part of a batch that belongs to one rank.
struct BatchShare {
  uint64_t first_entry = 0;    // index into the slot's entries
  uint32_t record_count = 0;   // of samples that are complete
  uint32_t skipped_count = 0;  // samples left out because a record could not be read
};

// Part of a slot that could not be read (OnError::kSkip).
struct BadRange {
  uint64_t at = 0;  // bytes from the start of the slot's pages
  uint64_t length_bytes = 0;
};

// The description of a slot for the ranks. The reader that finishes the slot writes it.
struct SlotHead {
  uint64_t first_batch = 0;
  uint64_t batch_count = 0;
  uint64_t shares_at = 0;   // BatchShare [batch_count * rank count], batch after batch
  uint64_t entries_at = 0;  // RecordEntry [...]
  // The base of the entries' offsets. True: the start of the window memory. False: the start of the
  // map of the file (in place), or of the file cache.
  bool is_in_ring = true;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_SLOT_HEAD_H_
