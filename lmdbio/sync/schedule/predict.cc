#include "lmdbio/sync/schedule/predict.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

constexpr size_t kPlayedCount = 6;  // iterations; the channel carries work over from the first ones
constexpr int64_t kWorthDivisor = 50;  // of a schedule's iteration: 1.02
constexpr int64_t kNotYet = -kTimeMaxNs - 1;

// An event of the program. At one time, those of an earlier iteration come first, and in an
// iteration submissions before waits.
struct PlayedEvent {
  int64_t program_ns = 0;
  size_t iteration = 0;
  bool is_wait = false;  // otherwise a submission
  size_t unit = 0;
  friend auto operator<=>(const PlayedEvent&, const PlayedEvent&) = default;
};

// A program and its channel. The wall clock is the program clock plus all stops so far.
class PlayedProgram {
 public:
  PlayedProgram(std::span<const TransferUnit> units, const std::vector<TransferStep>& steps,
                int64_t length_ns, const TransferModel& model)
      : units_(units),
        steps_(steps),
        length_ns_(length_ns),
        submitted_(kPlayedCount * units.size(), kNotYet),
        done_(kPlayedCount * units.size(), kNotYet),
        last_steps_(units.size()) {
    step_ns_.reserve(steps.size());
    for (size_t step = 0; step < steps.size(); ++step) {
      step_ns_.push_back(model.TimeOf(steps[step].bytes));
      last_steps_[steps[step].unit] = step;
    }
    for (size_t iteration = 0; iteration < kPlayedCount; ++iteration) {
      for (size_t unit = 0; unit < units.size(); ++unit) {
        events_.push_back({SubmissionOf(iteration, unit), iteration, false, unit});
        const int64_t wait_ns = BeginOf(iteration) + units[unit].due_ns;
        events_.push_back({wait_ns, iteration, true, unit});
      }
    }
    std::sort(events_.begin(), events_.end());
  }

  PredictedIteration Play() {
    const int64_t stall_ns = PlayUntil(kPlayedCount - 1);
    const int64_t last_stall_ns = PlayUntil(kPlayedCount) - stall_ns;
    int64_t channel_ns = 0;
    for (const int64_t step_ns : step_ns_) channel_ns = AddNs(channel_ns, step_ns);
    const int64_t played_ns = std::max(AddNs(length_ns_, last_stall_ns), channel_ns);
    return {played_ns, played_ns - length_ns_};
  }

 private:
  int64_t BeginOf(size_t iteration) const { return static_cast<int64_t>(iteration) * length_ns_; }
  int64_t SubmissionOf(size_t iteration, size_t unit) const {
    return BeginOf(iteration) + units_[unit].ready_ns;
  }

  // Plays all that comes before the program clock begins an iteration. Returns all stops so far.
  int64_t PlayUntil(size_t end) {
    for (; played_count_ < events_.size(); ++played_count_) {
      const PlayedEvent& event = events_[played_count_];
      if (event.program_ns >= BeginOf(end)) break;
      const size_t place = event.iteration * units_.size() + event.unit;
      if (!event.is_wait) {
        Submit(event.iteration, event.unit);
        continue;
      }
      while (done_[place] == kNotYet) MakeStep();
      stall_ns_ = std::max(stall_ns_, done_[place] - event.program_ns);
    }
    return stall_ns_;
  }

  // Returns when the unit is submitted.
  int64_t Submit(size_t iteration, size_t unit) {
    int64_t& submitted_ns = submitted_[iteration * units_.size() + unit];
    if (submitted_ns == kNotYet) submitted_ns = AddNs(SubmissionOf(iteration, unit), stall_ns_);
    return submitted_ns;
  }

  void MakeStep() {
    const size_t iteration = step_count_ / steps_.size();
    const size_t index = step_count_ % steps_.size();
    ++step_count_;
    LMDBIO_CHECK(iteration < kPlayedCount);
    const TransferStep& step = steps_[index];
    const int64_t begin_ns = std::max(free_ns_, Submit(iteration, step.unit));
    free_ns_ = AddNs(begin_ns, step_ns_[index]);
    if (last_steps_[step.unit] == index) done_[iteration * units_.size() + step.unit] = free_ns_;
  }

  std::span<const TransferUnit> units_;
  const std::vector<TransferStep>& steps_;
  const int64_t length_ns_;
  std::vector<int64_t> step_ns_;     // [steps]
  std::vector<PlayedEvent> events_;  // in the order of the program
  size_t played_count_ = 0;          // of events_
  int64_t stall_ns_ = 0;             // all stops so far
  std::vector<int64_t> submitted_;   // [iterations, units] on the wall clock
  std::vector<int64_t> done_;        // [iterations, units] on the wall clock
  std::vector<size_t> last_steps_;   // [units]
  size_t step_count_ = 0;            // of all iterations
  int64_t free_ns_ = -kTimeMaxNs;    // the channel has made all steps so far
};

// The greatest lateness of the units that are due within an iteration, at the best rate.
int64_t LeastLatenessNs(std::span<const TransferUnit> units, int64_t length_ns,
                        const TransferModel& model) {
  std::vector<size_t> arrivals(units.size());
  std::iota(arrivals.begin(), arrivals.end(), size_t{0});
  std::sort(arrivals.begin(), arrivals.end(),
            [&](size_t a, size_t b) { return units[a].ready_ns < units[b].ready_ns; });
  using Work = std::pair<int64_t, int64_t>;  // due time, and the time that is left to make
  std::priority_queue<Work, std::vector<Work>, std::greater<>> ready;
  int64_t now_ns = -kTimeMaxNs;
  int64_t lateness_ns = -kTimeMaxNs;
  for (size_t arrived = 0; arrived < arrivals.size() || !ready.empty();) {
    const int64_t arrival_ns =
        arrived < arrivals.size() ? units[arrivals[arrived]].ready_ns : kScheduleEndNs;
    if (ready.empty()) now_ns = std::max(now_ns, arrival_ns);
    if (arrival_ns <= now_ns) {
      const TransferUnit& unit = units[arrivals[arrived++]];
      const int64_t due_ns = unit.due_ns > length_ns ? kScheduleEndNs : unit.due_ns;
      ready.emplace(due_ns, model.LeastTimeOf(unit.bytes));
      continue;
    }
    const auto [due_ns, work_ns] = ready.top();
    ready.pop();
    const int64_t made_ns = std::min(work_ns, arrival_ns - now_ns);
    now_ns = AddNs(now_ns, made_ns);
    if (made_ns < work_ns) {
      ready.emplace(due_ns, work_ns - made_ns);
    } else {
      lateness_ns = std::max(lateness_ns, now_ns - due_ns);
    }
  }
  return lateness_ns;
}

}  // namespace

PredictedIteration PredictIteration(std::span<const TransferUnit> units,
                                    const std::vector<TransferStep>& steps, int64_t length_ns,
                                    const TransferModel& model) {
  return PlayedProgram(units, steps, length_ns, model).Play();
}

int64_t LowerBound(std::span<const TransferUnit> units, int64_t length_ns,
                   const TransferModel& model) {
  uint64_t bytes = 0;
  for (const TransferUnit& unit : units) bytes += unit.bytes;
  const int64_t lateness_ns = LeastLatenessNs(units, length_ns, model);
  return std::max({length_ns, AddNs(length_ns, lateness_ns), model.LeastTimeOf(bytes)});
}

// `other - schedule` is an integer, so the quotient may be rounded down.
bool IsWorthIt(int64_t schedule_ns, int64_t other_ns) {
  return other_ns - schedule_ns > schedule_ns / kWorthDivisor;
}

}  // namespace lmdbio::sync
