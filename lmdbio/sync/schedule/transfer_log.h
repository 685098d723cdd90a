// lmdbio/sync/schedule/transfer_log.h - what transfers of each size took lately.
//
// A trial is short: its calls may fit into the bucket of a network that limits the rate. So the
// times of transfers in a training replace those of the trial.
//
// Such a network lets a call pass faster after a rest, and the calls of a good plan have no rests
// between them. So a call counts if the rests before it are made up for by calls as long, but for
// an eighth of the call itself.
//
// Source: docs/caramel.md "Transfer model".
#ifndef LMDBIO_SYNC_SCHEDULE_TRANSFER_LOG_H_
#define LMDBIO_SYNC_SCHEDULE_TRANSFER_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::sync {

// Pure: no clock.
// Threads: one at a time.
class TransferLog {
 public:
  static constexpr size_t kKeptTimes = 16;  // of one size
  static constexpr size_t kTimesMin = 3;    // fewer of a size say nothing
  static constexpr size_t kKeptSizes = 256;

  static constexpr int64_t kRestMaxNs = 1'000'000'000;  // longer ones count as so long
  static constexpr int64_t kRestDivisor = 8;            // of a call

  // rest_ns  without a call, before this one; not negative, and at most kScheduleEndNs
  void Add(const TransferSample& sample, int64_t rest_ns);
  // The rests before the next call stay.
  void Clear() { times_.clear(); }

  // The median of each size with enough times, by size; and those samples of `trial` whose size is
  // not within a factor of two of one of them.
  std::vector<TransferSample> Merge(const std::vector<TransferSample>& trial) const;
  // The samples of a trial in another network: in the proportion in which the sizes with enough
  // times, all of them together, took longer or shorter than a model of the trial. Unchanged if
  // there is no such size, or no such model.
  std::vector<TransferSample> Correct(std::vector<TransferSample> trial) const;

 private:
  std::vector<TransferSample> Medians() const;

  std::map<uint64_t, std::deque<int64_t>> times_;  // by bytes; the last is the latest
  int64_t rested_ns_ = 0;                          // rests that no call has made up for
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_SCHEDULE_TRANSFER_LOG_H_
