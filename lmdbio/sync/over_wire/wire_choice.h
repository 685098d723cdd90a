// lmdbio/sync/over_wire/wire_choice.h - the table of algorithms for AllReduce over a wire, by size.
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
  kDoubling = 1,  // sends all values in every step of the agreement: for few bytes
  kRing = 2,
  kHalving = 3,
  kDirect = 4,
};

// "doubling", "ring", "halving", "direct"
std::string_view NameOf(WireAlgorithm algorithm);
// Errors: kInvalidArgument  unknown name; lists the known names
Result<WireAlgorithm> ParseWireAlgorithm(std::string_view name);

// With more ranks no default sends to every rank, because each rank would need a connection to each
// other rank. A caller may still request kDirect.
constexpr int kDirectRanksMax = 64;

constexpr uint64_t kAnyBytes = std::numeric_limits<uint64_t>::max();
// An agreement carries at most so many bytes of values.
constexpr uint64_t kDoublingBytesMax = uint64_t{1} << 20;
constexpr uint64_t kUsualChunkBytes = uint64_t{256} << 10;
constexpr uint32_t kUsualChunkDepth = 2;

struct WireChoice {
  uint64_t bytes_max = kAnyBytes;  // of the AllReduce calls to which this row applies
  WireAlgorithm algorithm = WireAlgorithm::kRing;
  uint64_t chunk_bytes = kUsualChunkBytes;  // > 0; the size of a message
  uint32_t chunk_depth = kUsualChunkDepth;  // > 0; chunks that a rank receives at once
};

// Rows of rising bytes_max.
using WireTable = std::vector<WireChoice>;

// Errors: kInvalidArgument  the table has no rows, its last row does not take any size, bytes_max
//                           does not rise, a number is 0, or doubling takes more than
//                           kDoublingBytesMax
Status CheckWireTable(const WireTable& table);

// Requires: CheckWireTable accepts the table
const WireChoice& ChoiceFor(const WireTable& table, uint64_t bytes);

// The table without measurements.
WireTable UsualWireTable();
// One algorithm for all sizes. Values are sent with the agreement only if it is kDoubling.
WireTable OneWireAlgorithm(WireAlgorithm algorithm, uint64_t chunk_bytes, uint32_t chunk_depth);

// Whether the reduction of a value depends neither on its place in a call nor on the size of the
// call: all rows have one algorithm, which is not kRing. kDoubling takes no large calls.
bool IsReproducible(const WireTable& table);
// The algorithm that a reproducible table of so many ranks has: kDirect, which reduces in the order
// of ranks, and with more than kDirectRanksMax ranks kHalving.
WireAlgorithm ReproducibleAlgorithm(int rank_count);

// One line for each row: "to 65536 bytes: doubling", "all others: ring, chunks of 262144 bytes, 4
// at once".
std::string TextOf(const WireTable& table);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_CHOICE_H_
