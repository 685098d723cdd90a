// bench/on_device/feed_files.h - a database for the figures of the feed, and its values as a plain
// file for other loaders.
#ifndef LMDBIO_BENCH_ON_DEVICE_FEED_FILES_H_
#define LMDBIO_BENCH_ON_DEVICE_FEED_FILES_H_

#include <cstdint>
#include <string>
#include <utility>

#include "bench/scratch_folder.h"
#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::figures {

struct FeedShape {
  uint64_t record_bytes = 0;
  uint64_t batch_records = 0;
  uint64_t batches = 0;  // of an epoch

  uint64_t record_count() const { return batch_records * batches; }
  uint64_t batch_bytes() const { return batch_records * record_bytes; }
};

// In a folder of its own, which the destructor removes.
class FeedFiles {
 public:
  // folder  for that folder
  // Errors: as ScratchFolder and DatabaseWriter; kIo  the values cannot be written
  static Result<FeedFiles> Write(const std::string& folder, const FeedShape& shape);

  std::string database() const { return folder_.path() / "records.lmdb"; }
  // All values, one behind the other.
  std::string values() const { return folder_.path() / "values"; }

 private:
  explicit FeedFiles(bench::ScratchFolder folder) : folder_(std::move(folder)) {}

  bench::ScratchFolder folder_;
};

// Whether this is the value of the record with this key.
bool IsFeedValue(Bytes key, Bytes value);

}  // namespace lmdbio::figures
#endif  // LMDBIO_BENCH_ON_DEVICE_FEED_FILES_H_
