// lmdbio/load/slots/counters.h - what a loader has done so far, for each rank.
//
// Source: dissertation 3.4.1 and 5.3.1 (read time = seek + I/O + skew); docs/loader.md "Counters".
#ifndef LMDBIO_LOAD_SLOTS_COUNTERS_H_
#define LMDBIO_LOAD_SLOTS_COUNTERS_H_

#include <cstdint>

namespace lmdbio::load {

// Times are seconds. The papers' words are in brackets.
struct LoaderCounters {
  // Of this rank's batches:
  uint64_t batch_count = 0;
  uint64_t record_count = 0;
  uint64_t skipped_count = 0;  // records left out because they could not be read
  uint64_t payload_bytes = 0;  // of the keys and values delivered
  uint64_t epoch_count = 0;    // ended
  uint64_t dropped_count = 0;  // records of all ranks that Tail::kDrop left out
  uint64_t wrapped_count = 0;  // records of all ranks that Tail::kWrap took of the next epoch
  double wait_s = 0;           // in Next, until the batch was there [skew]
  double next_cpu_s = 0;       // processor time spent in Next

  // Of this rank's reader; 0 on ranks that do not read:
  double locate_s = 0;      // finding out where records lie [seek]
  double read_s = 0;        // with at least one read under way [I/O]
  double turn_s = 0;        // until another host's reader had sent its cursor or places [skew]
  double finish_s = 0;      // checking pages and writing entries
  double space_wait_s = 0;  // until the trainers had let go of memory: they are the slower ones
  double reader_cpu_s = 0;  // processor time of the reading thread
  uint64_t read_requests = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_direct = 0;  // of these, around the page cache
  uint64_t bytes_useful = 0;  // of the pages that hold what was asked for
  uint64_t retry_count = 0;
  uint64_t missed_pages = 0;  // of strategies that fetch on a guess: see LocatorCounters
  uint64_t redundant_pages = 0;

  // Of this process since the loader was opened (getrusage):
  uint64_t major_faults = 0;
  uint64_t minor_faults = 0;
  uint64_t context_switches = 0;  // voluntary and not
  uint64_t memory_bytes_max = 0;  // resident, of the process's whole life
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_COUNTERS_H_
