// bench/bench_support.h - what the benchmarks share: databases to read, cold caches, ratios.
//
// A benchmark program compares ways of doing one thing within one run, interleaved, and prints each
// way's median beside that of the baseline. `--scale tiny` runs the same code on little data, so
// that it cannot rot; its figures mean nothing.
#ifndef LMDBIO_BENCH_BENCH_SUPPORT_H_
#define LMDBIO_BENCH_BENCH_SUPPORT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <benchmark/benchmark.h>

#include "lmdbio/base/types.h"
#include "tools/make/synthetic_records.h"

namespace lmdbio::bench {

struct BenchOptions {
  std::string directory;  // where databases are kept between runs
  bool is_tiny = false;
};

// Takes --scale tiny|full and --dir DIR off the command line, leaves the rest to Google Benchmark.
// Ends the program on misuse.
BenchOptions ParseOptions(int& argc, char** argv);

enum class RecordOrder { kSequential, kRandom };

struct DatabaseSpec {
  std::string name;
  uint64_t record_count = 0;
  tools::ValueSizes sizes;
  RecordOrder order = RecordOrder::kSequential;
};

tools::ValueSizes FixedSize(uint64_t value_bytes);
tools::ValueSizes LogNormalSize(double median_bytes, double sigma);

// The path of the database, with its provenance file beside it; made the first time. Ends the
// program on failure.
std::string DatabaseFor(const BenchOptions& options, const DatabaseSpec& spec);

// Sum of the 64-bit words of a value: touches all of it, and proves that two readers saw the same.
uint64_t SumWords(Bytes value);

// A pass over all records of the database at `path` by liblmdb's own cursor in a fresh environment,
// without locks, as a training job opens it. Returns the sum of SumWords over all values.
uint64_t ScanWithLmdb(const std::string& path);

// Drops the pages of the file from the page cache. Returns the share that stayed, 0 if all are
// gone.
double EvictFromCache(const std::string& data_path);

// Bytes that this process has caused to be fetched from storage.
uint64_t StorageBytesRead();

// Ends the program with a message if the ways of a benchmark did not find the same.
class Agreement {
 public:
  void Check(std::string_view what, uint64_t checksum);

 private:
  bool any_ = false;
  uint64_t checksum_ = 0;
};

// Runs the registered benchmarks, `repetitions` times each and interleaved, and prints medians with
// minimum and maximum. Within a group - the part of a name before '/' - the first is the baseline
// and the others are printed as multiples of its speed.
int RunAndCompare(int argc, char** argv, int repetitions);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_BENCH_SUPPORT_H_
