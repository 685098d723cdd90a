// lmdbio/file/blocks/storage_cost.h - what a request costs, and what a byte, where many are under
// way.
//
// Source: dissertation 5.1.2 (read bandwidth against block size); docs/order.md "Reads".
#ifndef LMDBIO_FILE_BLOCKS_STORAGE_COST_H_
#define LMDBIO_FILE_BLOCKS_STORAGE_COST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/blocks/block_engine.h"

namespace lmdbio::file {

// Storage that works on many requests at once needs the longer of requests * request_s and
// bytes * byte_s.
struct StorageCost {
  double request_s = 0;
  double byte_s = 0;
};

// What network storage and slow disks come to: for files that are not worth a probe.
inline constexpr StorageCost kAssumedCost = {100e-6, 1e-9};

// Reads a few pages and a few blocks of the data file at `path` at random places, with an engine of
// these options.
// options      its queue depth is used; `memory` is not
// file_bytes   of the file
// block_bytes  of a large read
// notes        gets those of the engine, if it is there
// Errors: of opening and reading
// Cost: 32 reads of 4 KiB and 8 of block_bytes; some 20 ms of storage that answers in 1 ms
Result<StorageCost> MeasureStorageCost(const std::string& path, const EngineOptions& options,
                                       uint64_t file_bytes, uint64_t block_bytes,
                                       std::vector<std::string>* notes = nullptr);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_STORAGE_COST_H_
