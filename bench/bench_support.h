// bench/bench_support.h - databases, cold caches and ratios for all benchmarks.
//
// A benchmark program compares several ways to do one thing in one run. The ways are interleaved;
// each median is printed beside the median of the baseline. `--scale tiny` runs the same code on
// little data, as a test; its figures mean nothing.
#ifndef LMDBIO_BENCH_BENCH_SUPPORT_H_
#define LMDBIO_BENCH_BENCH_SUPPORT_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
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
  std::string directory;  // databases are kept here between runs
  bool is_tiny = false;
};

// Removes --scale tiny|full and --dir DIR from the command line. Google Benchmark parses the rest.
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

// The path of the database, which has a provenance file. The first call creates both. Ends the
// program on failure.
std::string DatabaseFor(const BenchOptions& options, const DatabaseSpec& spec);

// The sum of the 64-bit words of a value. It touches all bytes, and equal sums show that two
// readers saw the same bytes.
uint64_t SumWords(Bytes value);

// Passes over all records of the database at `path` with liblmdb's cursor in a new environment
// without locks, as a training job opens it. Returns the sum of SumWords over all values.
uint64_t ScanWithLmdb(const std::string& path);

// The median time of calls of `way`, in milliseconds. Requires: repetitions > 0
template <typename Way>
double MedianMs(int repetitions, Way way) {
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(way());
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
  return times[static_cast<size_t>(repetitions / 2)];
}

// Drops the pages of the file from the page cache. Returns the share that stayed cached.
double EvictFromCache(const std::string& data_path);

// The bytes that storage has delivered for this process.
uint64_t StorageBytesRead();

// Ends the program with a message if two ways of a benchmark have different checksums.
class Agreement {
 public:
  void Check(std::string_view what, uint64_t checksum);

 private:
  bool any_ = false;
  uint64_t checksum_ = 0;
};

// Runs the registered benchmarks `repetitions` times each, interleaved, and prints medians with
// minimum and maximum. A group is the part of a name before '/'. The first benchmark of a group is
// the baseline; the others are printed as multiples of its speed.
int RunAndCompare(int argc, char** argv, int repetitions);

}  // namespace lmdbio::bench
#endif  // LMDBIO_BENCH_BENCH_SUPPORT_H_
