// lmdbio/sync/over_wire/wire_collectives.h - collectives of messages between ranks.
//
// Every call begins with a round in which the ranks find out whether they mean the same call, see
// wire_agreement.h; a small AllReduce travels with it. The others then take the algorithm that a
// table names for their size.
//
// Source: docs/collectives.md "Messages".
#ifndef LMDBIO_SYNC_OVER_WIRE_WIRE_COLLECTIVES_H_
#define LMDBIO_SYNC_OVER_WIRE_WIRE_COLLECTIVES_H_

#include <chrono>
#include <memory>

#include "lmdbio/sync/collective/collectives.h"
#include "lmdbio/sync/collective/wire.h"
#include "lmdbio/sync/over_wire/wire_choice.h"

namespace lmdbio::sync {

// Rank 0's hold for all.
struct WireCollectiveOptions {
  WireTable table;                            // empty: as measured
  uint64_t chunk_bytes = 0;                   // > 0: in place of the table's
  uint32_t chunk_depth = 0;                   // > 0: in place of the table's
  std::chrono::milliseconds trial_time{200};  // to measure in, about; 0: UsualWireTable
};

// Collective over the wire's ranks.
// Cost: trial_time, where there is no table
// Errors: kInvalidArgument  the table, see CheckWireTable; on every rank
//         others as Wire
Result<std::unique_ptr<Collectives>> WireCollectives(std::unique_ptr<Wire> wire,
                                                     const WireCollectiveOptions& options);

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_OVER_WIRE_WIRE_COLLECTIVES_H_
