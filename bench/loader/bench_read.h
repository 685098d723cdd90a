// bench/loader/bench_read.h - measures one pass of an emulated trainer over a database.
//
// Source: dissertation 3.1.3, Figure 3.4 (context switches, sleep time), 3.4.1 and 5.3.1 (the
// microbenchmark: the reads of Caffe without training).
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
  kSleep,  // an accelerator works; the processor is idle
};

// The hash that is summed over all delivered records.
enum class ChecksumKind {
  kNone,     // no hash; the bytes are not touched
  kRecords,  // RecordChecksum: of position, key and value
  kValues,   // XXH3-64 of the value; the same in any order, and other readers can compute it
};

struct ReadBenchOptions {
  std::string path;
  load::LoaderOptions options;
  double compute_s = 0;  // emulated work for each batch, on each rank
  ChecksumKind checksum = ChecksumKind::kRecords;
  uint64_t meet_every = 1;  // number of batches between two barriers; 0: one barrier at the end
  ComputeKind compute_kind = ComputeKind::kWork;
};

// The times of one rank in seconds. Its reader works while the rank waits, so the times overlap.
struct RankTimes {
  int host = 0;       // hosts are numbered from 0, in the order of their first ranks
  double seek_s = 0;  // this and the next two: of this rank's reader; 0 on ranks that do not read
  double io_s = 0;
  double turn_s = 0;  // see load::LoaderCounters
  double wait_s = 0;  // waiting for own batches
  double meet_s = 0;  // at barriers, waiting for the slowest rank
  double next_s = 0;  // in calls of Next
  // The part of next_s in which the calling thread slept. All its waits for a core are taken off,
  // also those outside Next, so this is a lower bound.
  double asleep_s = 0;
};

// The records that all ranks got.
struct DeliveredRecords {
  uint64_t record_count = 0;
  uint64_t skipped_count = 0;
  uint64_t payload_bytes = 0;
  uint64_t epoch_count = 0;    // ended epochs
  uint64_t dropped_count = 0;  // records that the ends of epochs left out
  uint64_t wrapped_count = 0;  // records that the ends of epochs took from the next epoch
  std::optional<uint64_t>
      checksum;  // over all records, as ChecksumKind says; none if not requested
};

// The times of a run in seconds. "max" is the maximum of the ranks, "mean" the mean of the readers.
struct ReadTimes {
  double began_unix_s = 0;   // begin of `seconds`, by the calendar of rank 0
  double seconds = 0;        // from before Open until the slowest rank has its last batch
  double first_batch_s = 0;  // maximum of the ranks
  double compute_s = 0;      // mean of the ranks
  double seek_s_max = 0, io_s_max = 0, skew_s_max = 0;
  double seek_s_mean = 0, io_s_mean = 0;
  double skew_s_mean = 0;  // mean of all ranks
  double turn_s_max = 0;   // of readers that take turns; see load::LoaderCounters

  // The busy share of the accelerator, from the first batch on.
  double utilisation() const {
    const double running_s = seconds - first_batch_s;
    return running_s > 0 ? compute_s / running_s : 0;
  }
};

// The work of all ranks and of the system for a run.
struct ReadCosts {
  uint64_t bytes_read = 0;    // bytes through the engine; for maps, bytes from storage
  uint64_t bytes_direct = 0;  // of the bytes through the engine, those past the page cache
  uint64_t bytes_useful = 0;
  uint64_t read_requests = 0;
  uint64_t retry_count = 0;
  uint64_t context_switches = 0;
  uint64_t major_faults = 0;
  uint64_t missed_pages = 0;  // see load::LocatorCounters
  uint64_t redundant_pages = 0;
  double cpu_s = 0;                 // processor time of all processes
  double loader_cpu_s = 0;          // its part in the loader: reading threads and calls of Next
  double loader_cpu_share_max = 0;  // the largest loader share of one core among the ranks
  uint64_t memory_bytes_max = 0;    // resident memory of the largest rank
};

struct ReadResult {
  DeliveredRecords delivered;
  ReadTimes times;
  ReadCosts costs;
  std::string state;  // Loader::Save of rank 0, after the last batch
  int hosts = 1;
  std::vector<RankTimes> ranks;    // in rank order
  std::vector<float> latencies_s;  // latency of every batch on every rank, unordered
  std::string how;                 // Loader::Describe of rank 0
  std::vector<std::string> notes;  // of rank 0
};

// A hash of one record. Sums of it do not depend on the readers and their order.
uint64_t RecordChecksum(uint64_t position, Bytes key, Bytes value);

// Collective. The ranks wait for each other as trainers do to average gradients (meet_every). Every
// rank gets the result; only rank 0 gets latencies, how and notes.
// Errors: as the loader
Result<ReadResult> MeasureRead(ranks::Group& group, const ReadBenchOptions& request);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_READ_H_
