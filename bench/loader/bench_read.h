// bench/loader/bench_read.h - one pass of the emulated trainer over a database, measured.
//
// Source: dissertation 3.4.1 and 5.3.1 (the microbenchmark: reads as Caffe would, no training).
#ifndef LMDBIO_BENCH_LOADER_BENCH_READ_H_
#define LMDBIO_BENCH_LOADER_BENCH_READ_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/load/loader/loader.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::tools {

enum class ComputeKind {
  kWork,   // arithmetic on this processor
  kSleep,  // an accelerator works, the processor is free
};

// What is summed up over the records that are delivered.
enum class ChecksumKind {
  kNone,     // nobody looks at them
  kRecords,  // RecordChecksum: of position, key and value
  kValues,   // XXH3-64 of the value alone: the same in any order, and for other readers to compute
};

struct ReadBenchOptions {
  std::string path;
  load::LoaderOptions options;
  double compute_s = 0;  // for each batch, on each rank
  ChecksumKind checksum = ChecksumKind::kRecords;
  uint64_t meet_every = 1;  // batches; trainers wait for each other after so many, 0: at the end
  ComputeKind compute_kind = ComputeKind::kWork;
};

// What one rank spent, in seconds. Reading goes on beside waiting, so the parts overlap.
struct RankTimes {
  int host = 0;       // hosts count from 0, in the order of their first ranks
  double seek_s = 0;  // of this rank's reader, as the next two; 0 on ranks that do not read
  double io_s = 0;
  double turn_s = 0;  // see load::LoaderCounters
  double wait_s = 0;  // for its own batches
  double meet_s = 0;  // with its batch at hand, until the slowest rank had its own
};

struct ReadResult {
  uint64_t record_count = 0;  // delivered, all ranks
  uint64_t skipped_count = 0;
  uint64_t payload_bytes = 0;
  uint64_t epoch_count = 0;  // ended; and the records that their ends left out, or took along
  uint64_t dropped_count = 0;
  uint64_t wrapped_count = 0;
  std::string state;  // Loader::Save of rank 0, after the last batch
  // See ChecksumKind; over all records. None if it was not asked for.
  std::optional<uint64_t> checksum;
  int hosts = 1;
  double began_unix_s = 0;   // when the clock of `seconds` began, by rank 0's calendar
  double seconds = 0;        // from before Open until the slowest rank has its last batch
  double first_batch_s = 0;  // of the slowest rank
  double compute_s = 0;      // mean of the ranks
  double seek_s_max = 0, io_s_max = 0, skew_s_max = 0;     // of the slowest rank
  double seek_s_mean = 0, io_s_mean = 0, skew_s_mean = 0;  // of readers; skew: of all ranks
  double turn_s_max = 0;    // of readers that take turns; see load::LoaderCounters
  uint64_t bytes_read = 0;  // through the engine; for maps, what storage delivered
  uint64_t bytes_useful = 0;
  uint64_t read_requests = 0;
  uint64_t retry_count = 0;
  uint64_t context_switches = 0;
  uint64_t major_faults = 0;
  uint64_t missed_pages = 0;  // see load::LocatorCounters
  uint64_t redundant_pages = 0;
  double cpu_s = 0;                 // of all processes, everything included
  double loader_cpu_s = 0;          // of these, in the loader: reading threads and calls of Next
  double loader_cpu_share_max = 0;  // of one core, of the rank that used most
  uint64_t memory_bytes_max = 0;    // resident, of the largest rank
  std::vector<RankTimes> ranks;     // in the order of ranks
  std::vector<float> latencies_s;   // of every batch on every rank, unordered
  std::string how;                  // Loader::Describe of rank 0
  std::vector<std::string> notes;   // of rank 0

  // The share of its time that the accelerator was busy, from the first batch on.
  double utilisation() const {
    const double running_s = seconds - first_batch_s;
    return running_s > 0 ? compute_s / running_s : 0;
  }
};

// A number for one record; sums of it do not depend on who read what when.
uint64_t RecordChecksum(uint64_t position, Bytes key, Bytes value);

// Collective. Ranks meet after every batch, as trainers do to average their gradients. Every rank
// gets the result; latencies, how and notes are rank 0's only.
// Errors: of the loader
Result<ReadResult> MeasureRead(ranks::Group& group, const ReadBenchOptions& request);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_READ_H_
