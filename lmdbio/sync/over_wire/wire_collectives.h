// lmdbio/sync/over_wire/wire_collectives.h - collectives of messages between ranks.
//
// Every call begins with an agreement of the ranks on the call (see wire_agreement.h). A small
// AllReduce is complete then. Other calls use the algorithm that a table names for their size.
//
// Source: docs/collectives.md "Messages".
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_COLLECTIVES_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_COLLECTIVES_H_

#include <chrono>
#include <memory>
#include <optional>

#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/collective/wire.h"
#include "lmdbio/sync/over_wire/wire_choice.h"

namespace lmdbio::sync {

// The options of rank 0 apply to all ranks.
struct WireCollectiveOptions {
  WireTable table;  // empty: the algorithm, or a trial
  // For all sizes. None: the trial chooses.
  std::optional<WireAlgorithm> algorithm = std::nullopt;
  uint64_t chunk_bytes = 0;  // 0: as in the table, or the trial chooses
  uint32_t chunk_depth = 0;  // 0: as in the table, or the trial chooses
  // Approximate. 0: no trial, but UsualWireTable, or the algorithm with the usual chunks.
  std::chrono::milliseconds trial_time{200};
};

// Collectives by a table of algorithms.
class TableCollectives : public Collectives {
 public:
  // The rows in use, the same on every rank.
  virtual const WireTable& table() const = 0;
};

// Collective over the ranks of the wire.
// Cost: trial_time, if there is no table and something is left to measure
// Errors: kInvalidArgument  the table, see CheckWireTable; on every rank
//         as Wire
Result<std::unique_ptr<TableCollectives>> WireCollectives(std::unique_ptr<Wire> wire,
                                                          const WireCollectiveOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_COLLECTIVES_H_
