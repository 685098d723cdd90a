// lmdbio/sync/schedule/program_times.h - when the program of a rank submits and needs its tensors.
//
// All times are on the program clock, which stands still while the program waits for tensors. It is
// the caller's: here are numbers only.
//
// Source: Hashemi et al. 4.1; docs/caramel.md "Times".
#ifndef LMDBIO_SYNC_SCHEDULE_PROGRAM_TIMES_H_
#define LMDBIO_SYNC_SCHEDULE_PROGRAM_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace lmdbio::sync {

// Relative to the first submission of the iteration.
struct TensorTimes {
  int64_t ready_ns = 0;  // it is submitted
  // The program needs it; at least ready_ns. More than the length of the iteration if the program
  // waits for it in the next one.
  int64_t due_ns = 0;
  friend bool operator==(const TensorTimes&, const TensorTimes&) = default;
};

// Learns the times of a program that submits the same tensors in each iteration, once each.
//
// The k-th submission of a tensor belongs to iteration k, which begins with the first of these. So
// a program may begin an iteration before it has submitted all tensors of the last one; but the
// constructor, and Restart, must be called between two iterations. A wait is for the last
// submission of its tensor, and the first one makes the tensor due.
//
// A tensor that nobody waits for is due with the last wait for another tensor of its iteration, if
// that comes after its submission. Otherwise it is due at the end of the iteration.
//
// An iteration is complete when the next one has begun and each tensor has been waited for, or
// submitted again. Each time is the least of the last 5 complete iterations: other work only delays
// a program.
//
// Calls come in the order of the program. A time that several threads have brought out of order
// counts as the begin of the iteration, or as the submission of the tensor.
//
// Threads: one at a time
class ProgramTimes {
 public:
  static constexpr size_t kKeptCount = 5;
  // Iterations in which the times of a program should become steady.
  static constexpr uint64_t kSteadyWithin = 20;

  explicit ProgramTimes(size_t tensor_count);

  // tensor  [0, tensor_count)
  // Cost: O(1), and O(tensors) if it completes an iteration
  void OnSubmit(size_t tensor, int64_t now_ns);
  // Begin of a wait, or a query that finds the tensor done. A wait for all tensors is one call for
  // each, with one time.
  void OnWaited(size_t tensor, int64_t now_ns);

  // Drops the iterations that are not complete. The next submission of each tensor belongs to the
  // iteration that begins then. Also done if a fourth iteration begins before one is complete: some
  // tensor does not come any more.
  void Restart();

  // Complete iterations since the constructor.
  uint64_t iteration_count() const { return iteration_count_; }
  // The last 5 iterations are complete, and in 3 of them or more no tensor and no length is later
  // than its least time by more than a quarter of the least length.
  bool is_steady() const;
  // The program computes something else each time: it is not steady after 20 iterations.
  bool is_dynamic() const { return iteration_count_ >= kSteadyWithin && !is_steady(); }

  // [tensor_count]  Requires: iteration_count() > 0
  std::vector<TensorTimes> tensors() const;
  // From the begin of an iteration to that of the next one. Requires: iteration_count() > 0
  int64_t length_ns() const;
  // Of the last 5 iterations, four were longer than length_ns() by at most this; all, if there are
  // fewer. Requires: iteration_count() > 0
  int64_t spread_ns() const;

 private:
  struct TimedIteration {
    int64_t begin_ns = 0;
    int64_t length_ns = 0;
    size_t open_count = 0;  // tensors that were neither waited for nor submitted again
    std::vector<TensorTimes> tensors;
  };

  void CloseComplete();
  bool IsAlike(const TimedIteration& iteration, const std::vector<TensorTimes>& least,
               int64_t slack_ns) const;

  size_t tensor_count_;
  std::vector<uint64_t> submit_counts_;  // [tensors]
  uint64_t first_open_ = 0;              // number of the first iteration of open_
  std::deque<TimedIteration> open_;      // begun, but not complete
  std::deque<TimedIteration> kept_;      // complete, the oldest first
  uint64_t iteration_count_ = 0;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_SCHEDULE_PROGRAM_TIMES_H_
