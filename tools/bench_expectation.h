// tools/bench_expectation.h - what a run must deliver, found out by other means than the loader's.
#ifndef LMDBIO_TOOLS_BENCH_EXPECTATION_H_
#define LMDBIO_TOOLS_BENCH_EXPECTATION_H_

#include <cstdint>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/loader/options.h"
#include "lmdbio/order/schedule.h"

namespace lmdbio::tools {

struct Expectation {
  uint64_t record_count = 0;  // of the database
  uint64_t batch_count = 0;   // of the run: as asked for, or one epoch
  uint64_t page_bytes = 0;    // of the pages that hold what is delivered, each as often as an epoch
                              // reads it; in chunked order, of whole chunks
  order::Schedule schedule{1, 1, loader::Tail::kWrap};
};

// From a page walk. Errors: kInvalidArgument (an empty database), kIo, kCorruption, ...
Result<Expectation> Expect(const std::string& data_path, const loader::LoaderOptions& options);

// The sum of RecordChecksum over the run's records, by one pass of liblmdb's cursor.
// options  with batch_count_max set
// Errors: liblmdb's words
Result<uint64_t> SerialChecksum(const std::string& data_path, const loader::LoaderOptions& options);

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_BENCH_EXPECTATION_H_
