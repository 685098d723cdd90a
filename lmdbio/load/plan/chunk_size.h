// lmdbio/load/plan/chunk_size.h - the size of the coalesced reads of lmm-dio-prov-coal.
//
// The dissertation joins the data of several iterations into one read, "large enough to saturate"
// the storage, within a budget of memory (5.2.3: 2.5 GB). Its Figure 5.1 shows the rate for each
// size of a read. Here the curve is the one of a measured cost:
//
//   rate(size) = size / (request_s + size * byte_s)
//
// A chunk is an eighth of the budget. If the curve still rises there, the chunk is the size at
// which it reaches 95 % of its limit, up to a quarter of the budget. So four to eight chunks fit:
// one in use, one ready, and two or more in flight, because the storage must not be idle between
// chunks. A budget that is more than twice as large always gives larger chunks.
//
// Source: dissertation 5.1.2 (Figure 5.1) and 5.2.3; docs/loader.md "Coalesced reads".
#ifndef LMDBIO_LOAD_PLAN_CHUNK_SIZE_H_
#define LMDBIO_LOAD_PLAN_CHUNK_SIZE_H_

#include <cstdint>

#include "lmdbio/load/plan/block_cutter.h"

namespace lmdbio::load {

// The smallest read that gets 95 % of the largest rate of the curve. 0 if a request costs nothing.
uint64_t SaturatingBytes(const ReadCost& cost);

// The bytes of a chunk for a memory budget.
uint64_t ChunkBytes(uint64_t budget_bytes, const ReadCost& cost);

// The largest read of one of the readers that share a chunk: its whole part, up to 1 GiB.
// group_bytes  the pages of a batch group on this host. A chunk takes whole groups, so it may be
//              larger than `chunk_bytes` by one of them
// Returns: a multiple of kStretchAlignBytes
uint64_t ChunkReadBytes(uint64_t chunk_bytes, uint64_t group_bytes, uint64_t reader_count);

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_PLAN_CHUNK_SIZE_H_
