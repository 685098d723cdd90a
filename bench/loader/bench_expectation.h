// bench/loader/bench_expectation.h - what a run must deliver, found out by other means than the
// loader's.
#ifndef LMDBIO_BENCH_LOADER_BENCH_EXPECTATION_H_
#define LMDBIO_BENCH_LOADER_BENCH_EXPECTATION_H_

#include <cstdint>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/order/schedule.h"
#include "lmdbio/load/plan/options.h"

namespace lmdbio::tools {

struct Expectation {
  uint64_t record_count = 0;  // of the database
  uint64_t first_batch = 0;   // of the run: 0, or of the saved state
  uint64_t batch_end = 0;     // one behind the last: as asked for, or after one epoch
  uint64_t page_bytes = 0;    // of the pages that hold what is delivered, each as often as an epoch
                              // reads it; where batches share groups, of whole groups
  uint64_t bytes_per_record = 0;  // of the pages, in the mean
  load::Schedule schedule{load::ScheduleOptions()};

  uint64_t batch_count() const { return batch_end - first_batch; }
};

// The database of that name, or the main one if it is empty. Errors: as Environment::Named
Result<file::Database> OpenDatabase(const file::Environment& environment, const std::string& name);

// From a page walk. Errors: kInvalidArgument (an empty database), kIo, kCorruption, ...
Result<Expectation> Expect(const std::string& data_path, const load::LoaderOptions& options);

// The sum of RecordChecksum over the run's records, looked up in a table of where a
// pass of liblmdb's cursor has found them.
// options  with batch_count_max set
// Errors: liblmdb's words
Result<uint64_t> SerialChecksum(const std::string& data_path, const load::LoaderOptions& options);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_EXPECTATION_H_
