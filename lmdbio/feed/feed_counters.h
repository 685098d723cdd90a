// lmdbio/feed/feed_counters.h - the counters of a feed.
//
// Source: docs/device_feed.md "Observability".
#ifndef LMDBIO_FEED_FEED_COUNTERS_H_
#define LMDBIO_FEED_FEED_COUNTERS_H_

#include <cstdint>

namespace lmdbio::feed {

struct FeedCounters {
  uint64_t batch_count = 0;     // that the program has got
  uint64_t gathered_count = 0;  // batches that a kernel has read out of the window
  uint64_t staged_count = 0;    // batches that the host has copied first
  uint64_t device_bytes = 0;    // of rows and offsets, of both
  uint64_t grown_count = 0;     // times at which a buffer was made or enlarged
  double wait_s = 0;            // in Next, until the copy of the batch was enqueued
  double buffer_wait_s = 0;     // of these, until the program had used a buffer, or a copy was done
};

}  // namespace lmdbio::feed
#endif  // LMDBIO_FEED_FEED_COUNTERS_H_
