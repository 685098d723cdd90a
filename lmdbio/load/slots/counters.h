// lmdbio/load/slots/counters.h - the counters of a loader, for each rank.
//
// Source: dissertation 3.4.1 and 5.3.1 (read time = seek + I/O + skew); docs/loader.md "Counters".
#ifndef LMDBIO_LOAD_SLOTS_COUNTERS_H_
#define LMDBIO_LOAD_SLOTS_COUNTERS_H_

#include <cstdint>

namespace lmdbio::load {

// Times are seconds. The terms of the papers are in brackets.
struct LoaderCounters {  // check-tree: large-class (a field for each counter)
  // Of this rank's batches:
  uint64_t batch_count = 0;
  uint64_t record_count = 0;
  uint64_t skipped_count = 0;  // records left out because they could not be read
  uint64_t payload_bytes = 0;  // of the keys and values delivered
  uint64_t epoch_count = 0;    // ended
  uint64_t dropped_count = 0;  // records of all ranks that Tail::kDrop left out
  uint64_t wrapped_count = 0;  // records of all ranks that Tail::kWrap took from the next epoch
  double wait_s = 0;           // in Next, asleep until the batch is there [skew]
  double next_cpu_s = 0;       // processor time spent in Next

  // Of this rank's reader; 0 on ranks that do not read:
  double locate_s = 0;      // locating records and planning [seek]
  double read_s = 0;        // with at least one read in flight [I/O]
  double turn_s = 0;        // until another reader has sent its cursor, locations or token [skew]
  double finish_s = 0;      // checking pages and writing entries
  double space_wait_s = 0;  // until the ranks have released memory: they are slower than the reads
  double reader_cpu_s = 0;  // processor time of the reading thread
  uint64_t read_requests = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_direct = 0;  // of these, past the page cache
  uint64_t bytes_useful = 0;  // of the pages that hold the records
  uint64_t retry_count = 0;
  uint64_t missed_pages = 0;  // of strategies that guess pages: see LocatorCounters
  uint64_t redundant_pages = 0;

  // Of this process since the loader was opened (getrusage):
  uint64_t major_faults = 0;
  uint64_t minor_faults = 0;
  uint64_t context_switches = 0;  // voluntary and not
  uint64_t memory_bytes_max = 0;  // resident, in the whole life of the process
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_COUNTERS_H_
