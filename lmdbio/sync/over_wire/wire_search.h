// lmdbio/sync/over_wire/wire_search.h - finds the fastest algorithm, chunk size and depth by size.
//
// The search decides which calls are measured, in which order and how often. It has no clock and no
// messages of its own, so tests run it in virtual time.
//
// For each size, from the smallest to the largest:
//   1. It measures every algorithm, with the chunk size and depth of the previous size.
//   2. With the best algorithm it measures the other chunk sizes, then the other depths, and all
//      pairs of both as long as calls are short. Two choices that make the same messages at this
//      size are measured once: a message of one chunk has no depth.
// A chunk size or depth replaces another one only if it is clearly faster, so noise does not move
// it. The search begins no size and no measurement for which the time that is left is too short. A
// slow network ends it at a smaller size than a fast one. The larger sizes then get the ring,
// unless it is far behind at the last size.
//
// Source: Hashemi et al. 4.4, Figure 13 (the depth depends on the size); docs/collectives.md
// "Choice of algorithm".
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_SEARCH_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_SEARCH_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "lmdbio/base/status.h"
#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/over_wire/wire_choice.h"

namespace lmdbio::sync {

using WireSeconds = std::chrono::duration<double>;

// The sizes of the measured calls. The last is the usual size of a fusion buffer. Larger calls
// consist of the same messages, only more of them, so they use its choice.
constexpr std::array<uint64_t, 9> kTriedBytes = {1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10,
                                                 1 << 20, 4 << 20, 16 << 20, 64 << 20};
constexpr std::array<uint64_t, 3> kTriedChunkBytes = {64 << 10, 256 << 10, 1 << 20};
constexpr std::array<uint32_t, 4> kTriedDepths = {1, 2, 4, 8};
constexpr int kTriedRoundsMax = 16;
// Doubling sends all values in every step, in one message. A short trial does not show how long
// that takes: its calls may fit into the bucket of a network that limits the rate, and those of a
// training do not. So the row of doubling ends at twice this size, up to which latency decides.
constexpr uint64_t kTriedDoublingBytesMax = 16 << 10;
static_assert(2 * kTriedDoublingBytesMax <= kDoublingBytesMax);

struct WireSearchSpace {
  int rank_count = 2;
  // Not kDoubling, which takes no large calls. None: all are measured.
  std::optional<WireAlgorithm> algorithm = std::nullopt;
  uint64_t chunk_bytes = 0;  // 0: measured
  uint32_t chunk_depth = 0;  // 0: measured
};

// Makes `rounds` (2 to kTriedRoundsMax) calls of `bytes` bytes. Returns the usual time of one.
using TimedCalls =
    std::function<Result<WireSeconds>(uint64_t bytes, const WireChoice& choice, int rounds)>;
// The time since the search began.
using WireStopwatch = std::function<WireSeconds()>;

struct MeasuredWire {
  WireTable table;
  uint64_t ample_bytes = kUsualAmpleBytes;  // see Collectives
  uint64_t measured_bytes = 0;              // the largest size that was measured
};

// Whether both choices make the same messages, and receive as many of them at once, in an AllReduce
// of `bytes` bytes.
bool IsSameCall(const WireChoice& one, const WireChoice& other, uint64_t bytes, int rank_count);

// Measures at least the smallest size. Sizes in a row with the same best choice become one row of
// the table.
// time  the limit; one slow size may exceed it
// Errors: those of `calls`
Result<MeasuredWire> SearchWire(const WireSearchSpace& space, WireSeconds time,
                                const TimedCalls& calls, const WireStopwatch& elapsed);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_SEARCH_H_
