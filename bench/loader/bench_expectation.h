// bench/loader/bench_expectation.h - the expected outcome of a run, computed without the loader.
#ifndef LMDBIO_BENCH_LOADER_BENCH_EXPECTATION_H_
#define LMDBIO_BENCH_LOADER_BENCH_EXPECTATION_H_

#include <cstdint>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/files/opened_files.h"
#include "lmdbio/load/order/schedule.h"
#include "lmdbio/load/plan/options.h"

namespace lmdbio::tools {

struct ReadExpectation {
  uint64_t file_count = 1;    // files of the list
  uint64_t record_count = 0;  // records of the database
  uint64_t first_batch = 0;   // first batch of the run: 0, or that of the saved state
  uint64_t batch_end = 0;     // one past the last batch: as requested, or after one epoch
  uint64_t page_bytes = 0;    // bytes of the pages of the delivered records, once for each epoch;
                              // if batches share groups, of whole groups
  uint64_t bytes_per_record = 0;  // mean page bytes of a record
  load::Schedule schedule{load::ScheduleOptions()};

  uint64_t batch_count() const { return batch_end - first_batch; }
};

// The database `name`, or the main database if `name` is empty. Errors: as Environment::Named
Result<file::Database> OpenDatabase(const file::Environment& environment, const std::string& name);

// Computes the expectation from page walks.
// list  of the databases whose records follow each other; not empty
// Errors: kInvalidArgument (an empty database), kIo, kCorruption, ...
Result<ReadExpectation> Expect(const std::vector<load::DatabasePath>& list,
                               const load::LoaderOptions& options);

// The sum of RecordChecksum over the records of the run. The records are looked up in a table that
// a pass of liblmdb's cursor fills.
// options  max_batches must be set
// Errors: the messages of liblmdb
Result<uint64_t> SerialChecksum(const std::vector<load::DatabasePath>& list,
                                const load::LoaderOptions& options);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_EXPECTATION_H_
