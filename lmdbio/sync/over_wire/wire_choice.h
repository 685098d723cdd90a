// lmdbio/sync/over_wire/wire_choice.h - which algorithm reduces how many bytes over a wire.
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_CHOICE_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_CHOICE_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio::sync {

// The algorithm of an AllReduce over a wire; see docs/collectives.md "Messages". The numbers travel
// between ranks and are append-only.
enum class WireAlgorithm : uint8_t {
  kDoubling = 1,  // all bytes in every step, with the tags: for few bytes
  kRing = 2,
  kHalving = 3,
  kDirect = 4,
};

// "doubling", "ring", "halving", "direct"
std::string_view NameOf(WireAlgorithm algorithm);
// Errors: kInvalidArgument  there is no such algorithm; names those that there are
Result<WireAlgorithm> ParseWireAlgorithm(std::string_view name);

constexpr uint64_t kAnyBytes = std::numeric_limits<uint64_t>::max();
// More is not sent along with tags.
constexpr uint64_t kDoublingBytesMax = uint64_t{1} << 20;
constexpr uint64_t kUsualChunkBytes = uint64_t{256} << 10;
constexpr uint32_t kUsualChunkDepth = 4;

struct WireChoice {
  uint64_t bytes_max = kAnyBytes;  // for AllReduce of at most so many bytes
  WireAlgorithm algorithm = WireAlgorithm::kRing;
  uint64_t chunk_bytes = kUsualChunkBytes;  // > 0; messages are cut in so many
  uint32_t chunk_depth = kUsualChunkDepth;  // > 0; so many are received at once
};

// Rows of rising bytes_max.
using WireTable = std::vector<WireChoice>;

// Errors: kInvalidArgument  the table has no rows, its last row does not take any size, bytes_max
//                           does not rise, a number is 0, or doubling takes more than
//                           kDoublingBytesMax
Status CheckWireTable(const WireTable& table);

// Requires: CheckWireTable finds nothing
const WireChoice& ChoiceFor(const WireTable& table, uint64_t bytes);

// What is taken where nothing was measured.
WireTable UsualWireTable();
// One algorithm for all sizes; small ones travel with the tags only if that is the algorithm.
WireTable OneWireAlgorithm(WireAlgorithm algorithm, uint64_t chunk_bytes, uint32_t chunk_depth);

// "to 65536 bytes: doubling", "all others: ring, chunks of 262144 bytes, 4 at once"; a line a row
std::string TextOf(const WireTable& table);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_CHOICE_H_
