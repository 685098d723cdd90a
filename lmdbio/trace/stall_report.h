// lmdbio/trace/stall_report.h - tensors that some rank does not submit: what to say, and when to
// give up.
//
// Pure: no thread, no clock, no message. Who drives it says what is pending and what time it is.
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

// A tensor that was submitted here and that not all ranks have submitted.
struct PendingTensor {
  std::string name;
  uint64_t number = 0;  // of the submission: a name comes again
  StallClock::time_point since;
  std::vector<int> missing_ranks;  // as far as is known; empty: not known
};

// As in SyncOptions.
struct StallLimits {
  std::chrono::milliseconds report{5000};    // 0: never
  std::chrono::milliseconds limit{600'000};  // 0: never
};

// What Look found.
struct StallFindings {
  // To be logged, as "tensor 'conv1' (number 17) has waited 6.2 s for ranks 2, 5". Of more than
  // StallWatch::kLinesMax tensors the last line is "and 37 more".
  std::vector<std::string> lines;
  std::vector<size_t> reported;  // [lines at most] indices of these tensors in `pending`
  // kPeerFailed: the tensor that has waited longest has passed the limit. Names the tensor, its
  // number and the ranks.
  Status status;
};

// Threads: one at a time.
class StallWatch {
 public:
  static constexpr size_t kLinesMax = 10;

  explicit StallWatch(StallLimits limits) : limits_(limits) {}

  // What there is to say about `pending` now. Each tensor is reported once in a report time,
  // counted from its submission, whether it got a line of its own or is among the "more".
  // pending  [any order] all of them: others are forgotten
  StallFindings Look(std::span<const PendingTensor> pending, StallClock::time_point now);

 private:
  using Key = std::pair<std::string, uint64_t>;
  StallClock::time_point DueAt(const PendingTensor& tensor) const;

  StallLimits limits_;
  std::map<Key, StallClock::time_point> reported_at_;  // of what is pending
};

}  // namespace lmdbio::trace
#endif  // LMDBIO_TRACE_STALL_REPORT_H_
