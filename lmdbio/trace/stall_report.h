// lmdbio/trace/stall_report.h - stalls: reports tensors that some rank does not submit, and detects
// the limit.
//
// Pure: no thread, no clock, no message. The caller passes the pending tensors and the time.
//
// Source: docs/sync.md "Failures".
#ifndef LMDBIO_TRACE_STALL_REPORT_H_
#define LMDBIO_TRACE_STALL_REPORT_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"

namespace lmdbio::trace {

using StallClock = std::chrono::steady_clock;

// A tensor that was submitted here, and that not all ranks have submitted, or that is not ready.
struct PendingTensor {
  std::string name;
  uint64_t number = 0;  // of the submission, because names repeat
  StallClock::time_point since;
  std::vector<int> missing_ranks;  // the known ones; empty: unknown
  bool is_ready = true;            // false: its stream on this rank's GPU is not done with it
};

// As in SyncOptions.
struct StallLimits {
  std::chrono::milliseconds report{5000};    // 0: never
  std::chrono::milliseconds limit{600'000};  // 0: never
};

// The result of Look.
struct StallFindings {
  // Lines for the log, such as "tensor 'conv1' (number 17) has waited 6.2 s for ranks 2, 5". With
  // more than StallWatch::kLinesMax tensors the last line is "and 37 more".
  std::vector<std::string> lines;
  std::vector<size_t> reported;  // [lines at most] indices of these tensors in `pending`
  // kPeerFailed if the tensor that has waited longest has passed the limit. Names the tensor, its
  // number and the ranks.
  Status status;
};

// Threads: one at a time.
class StallWatch {
 public:
  static constexpr size_t kLinesMax = 10;

  explicit StallWatch(StallLimits limits) : limits_(limits) {}

  // The findings for `pending` at time `now`. Each tensor is reported once in a report time,
  // counted from its submission. A tensor in the "and N more" line counts as reported.
  // pending  [any order] all pending tensors; the state of other tensors is dropped
  StallFindings Look(std::span<const PendingTensor> pending, StallClock::time_point now);

 private:
  using Key = std::pair<std::string, uint64_t>;
  StallClock::time_point DueAt(const PendingTensor& tensor) const;

  StallLimits limits_;
  std::map<Key, StallClock::time_point> reported_at_;  // of the pending tensors
};

}  // namespace lmdbio::trace
#endif  // LMDBIO_TRACE_STALL_REPORT_H_
