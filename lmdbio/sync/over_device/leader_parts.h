// lmdbio/sync/over_device/leader_parts.h - the part of the values that each leader reduces.
#ifndef LMDBIO_SYNC_OVER_DEVICE_LEADER_PARTS_H_
#define LMDBIO_SYNC_OVER_DEVICE_LEADER_PARTS_H_

#include <algorithm>
#include <cstdint>

namespace lmdbio::sync {

// Parts begin at a multiple of it, counted from the first value. It is a cache line of a GPU, and a
// multiple of each element.
inline constexpr uint64_t kPartUnitBytes = 128;

struct LeaderPart {
  uint64_t offset = 0;  // bytes from the first value
  uint64_t size_bytes = 0;
};

// The parts of all leaders follow each other, and cover `size_bytes`. Few values leave some of them
// empty.
// size_bytes  [< 2^63]
// leader      [< leader_count]
constexpr LeaderPart PartOfLeader(uint64_t size_bytes, uint64_t leader, uint64_t leader_count) {
  const uint64_t units = size_bytes / kPartUnitBytes + (size_bytes % kPartUnitBytes > 0 ? 1 : 0);
  const uint64_t each = units / leader_count;
  const uint64_t more = units % leader_count;  // the first leaders have one more
  const uint64_t first = leader * each + std::min(leader, more);
  const uint64_t count = each + (leader < more ? 1 : 0);
  const uint64_t begin = std::min(first * kPartUnitBytes, size_bytes);
  return {begin, std::min(count * kPartUnitBytes, size_bytes - begin)};
}

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_DEVICE_LEADER_PARTS_H_
