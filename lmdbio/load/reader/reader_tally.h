// lmdbio/load/reader/reader_tally.h - counters that a reading thread writes and any thread reads.
//
// Source: docs/loader.md "Counters".
#ifndef LMDBIO_LOAD_READER_READER_TALLY_H_
#define LMDBIO_LOAD_READER_READER_TALLY_H_

#include <atomic>
#include <cstdint>

#include "lmdbio/load/slots/counters.h"

namespace lmdbio::load {

// Times are seconds; counters.h says what they measure. Writers use Add (load/locate/clocks.h).
struct ReaderTally {
  std::atomic<double> locate_s{0}, read_s{0}, finish_s{0}, space_wait_s{0}, turn_s{0}, cpu_s{0};
  std::atomic<uint64_t> kept_slots{0};  // in the file cache
  std::atomic<uint64_t> requests{0}, bytes{0}, direct_bytes{0}, useful_bytes{0}, retries{0};

  // Threads: any
  void AddTo(LoaderCounters& counters) const {
    const auto relaxed = std::memory_order_relaxed;
    counters.locate_s += locate_s.load(relaxed);
    counters.read_s += read_s.load(relaxed);
    counters.finish_s += finish_s.load(relaxed);
    counters.space_wait_s += space_wait_s.load(relaxed);
    counters.turn_s += turn_s.load(relaxed);
    counters.reader_cpu_s += cpu_s.load(relaxed);
    counters.read_requests += requests.load(relaxed);
    counters.bytes_read += bytes.load(relaxed);
    counters.bytes_direct += direct_bytes.load(relaxed);
    counters.bytes_useful += useful_bytes.load(relaxed);
    counters.retry_count += retries.load(relaxed);
  }
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_READER_READER_TALLY_H_
