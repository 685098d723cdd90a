#include "bench/sync/work_loop.h"

static const uint64_t kOdd = UINT64_C(0x9E3779B97F4A7C15);

uint64_t sync_work(const uint64_t* words, uint64_t units, uint64_t seed) {
  uint64_t state = seed;
  size_t place = 0;
  for (uint64_t unit = 0; unit < units; ++unit) {
    for (size_t i = 0; i < SYNC_WORK_UNIT_STEPS; ++i) {
      state = (state ^ words[place + i]) * kOdd;
      state ^= state >> 29;
    }
    place = (place + SYNC_WORK_UNIT_STEPS) % SYNC_WORK_WORDS;
  }
  return state;
}

void sync_work_fill(uint64_t* words) {
  for (size_t i = 0; i < SYNC_WORK_WORDS; ++i) words[i] = (i + 1) * kOdd;
}
