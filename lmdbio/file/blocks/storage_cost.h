// lmdbio/file/blocks/storage_cost.h - the time of a request and of a byte, with many in flight.
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

// Storage with many requests in flight takes the maximum of requests * request_s and
// bytes * byte_s.
struct StorageCost {
  double request_s = 0;
  double byte_s = 0;
};

// Assumed for files too small for a measurement. The values fit network storage and slow disks.
inline constexpr StorageCost kAssumedCost = {100e-6, 1e-9};

// Reads a few pages and a few blocks of the data file at `path` at random offsets.
// options      of the engine; `memory` is ignored
// file_bytes   the size of the file
// block_bytes  the size of a large read
// notes        receives the notes of the engine; may be null
// Errors: as OpenBlockEngine and WaitSome
// Cost: 32 reads of 4 KiB and 8 of block_bytes; about 20 ms if the storage answers in 1 ms
Result<StorageCost> MeasureStorageCost(const std::string& path, const EngineOptions& options,
                                       uint64_t file_bytes, uint64_t block_bytes,
                                       std::vector<std::string>* notes = nullptr);

// Returns the seconds of one read of 4 KiB while no other is in flight: the median of five, at
// random offsets of the data file at `path`. 0 for a file without a whole page.
// Errors: as MeasureStorageCost
// Cost: five reads
Result<double> MeasureReadSeconds(const std::string& path, const EngineOptions& options,
                                  uint64_t file_bytes);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_BLOCKS_STORAGE_COST_H_
