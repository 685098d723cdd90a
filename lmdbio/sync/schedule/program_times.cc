#include "lmdbio/sync/schedule/program_times.h"

#include <algorithm>
#include <utility>

#include "lmdbio/base/check.h"

namespace lmdbio::sync {
namespace {

constexpr int64_t kUnknown = -1;      // a time that has not come
constexpr size_t kOpenMax = 3;        // iterations
constexpr size_t kAlikeMin = 3;       // of ProgramTimes::kKeptCount
constexpr int64_t kSlackDivisor = 4;  // of the length

}  // namespace

ProgramTimes::ProgramTimes(size_t tensor_count)
    : tensor_count_(tensor_count), submit_counts_(tensor_count) {}

void ProgramTimes::OnSubmit(size_t tensor, int64_t now_ns) {
  LMDBIO_CHECK(tensor < tensor_count_);
  if (submit_counts_[tensor] - first_open_ >= kOpenMax) Restart();
  const uint64_t index = submit_counts_[tensor]++ - first_open_;
  if (index == open_.size()) {
    open_.push_back({now_ns, 0, tensor_count_, {tensor_count_, {kUnknown, kUnknown}}});
  }
  TimedIteration& iteration = open_[index];
  iteration.tensors[tensor].ready_ns = std::max<int64_t>(now_ns - iteration.begin_ns, 0);
  // The program may not wait for the last submission any more.
  if (index > 0 && open_[index - 1].tensors[tensor].due_ns == kUnknown) {
    --open_[index - 1].open_count;
  }
  CloseComplete();
}

void ProgramTimes::OnWaited(size_t tensor, int64_t now_ns) {
  LMDBIO_CHECK(tensor < tensor_count_);
  if (submit_counts_[tensor] <= first_open_) return;  // before its first submission, or again
  TimedIteration& iteration = open_[submit_counts_[tensor] - 1 - first_open_];
  TensorTimes& times = iteration.tensors[tensor];
  if (times.due_ns != kUnknown) return;
  times.due_ns = std::max(now_ns - iteration.begin_ns, times.ready_ns);
  --iteration.open_count;
  CloseComplete();
}

bool ProgramTimes::is_steady() const {
  if (kept_.size() < kKeptCount) return false;
  const std::vector<TensorTimes> least = tensors();
  const int64_t slack_ns = length_ns() / kSlackDivisor;
  const auto alike_count = std::count_if(
      kept_.begin(), kept_.end(),
      [&](const TimedIteration& iteration) { return IsAlike(iteration, least, slack_ns); });
  return static_cast<size_t>(alike_count) >= kAlikeMin;
}

std::vector<TensorTimes> ProgramTimes::tensors() const {
  LMDBIO_CHECK(!kept_.empty());
  std::vector<TensorTimes> least = kept_.front().tensors;
  for (const TimedIteration& iteration : kept_) {
    for (size_t i = 0; i < tensor_count_; ++i) {
      least[i].ready_ns = std::min(least[i].ready_ns, iteration.tensors[i].ready_ns);
      least[i].due_ns = std::min(least[i].due_ns, iteration.tensors[i].due_ns);
    }
  }
  return least;
}

int64_t ProgramTimes::length_ns() const {
  LMDBIO_CHECK(!kept_.empty());
  return std::min_element(kept_.begin(), kept_.end(),
                          [](const TimedIteration& a, const TimedIteration& b) {
                            return a.length_ns < b.length_ns;
                          })
      ->length_ns;
}

int64_t ProgramTimes::spread_ns() const {
  std::vector<int64_t> lengths_ns;
  for (const TimedIteration& iteration : kept_) lengths_ns.push_back(iteration.length_ns);
  std::ranges::sort(lengths_ns);
  return lengths_ns[std::min(lengths_ns.size(), kKeptCount - 1) - 1] - lengths_ns.front();
}

void ProgramTimes::Restart() {
  open_.clear();
  first_open_ = 0;
  std::fill(submit_counts_.begin(), submit_counts_.end(), uint64_t{0});
}

void ProgramTimes::CloseComplete() {
  while (open_.size() >= 2 && open_.front().open_count == 0) {
    TimedIteration iteration = std::move(open_.front());
    open_.pop_front();
    ++first_open_;
    iteration.length_ns = open_.front().begin_ns - iteration.begin_ns;
    int64_t last_wait_ns = kUnknown;
    for (const TensorTimes& times : iteration.tensors) {
      last_wait_ns = std::max(last_wait_ns, times.due_ns);
    }
    for (TensorTimes& times : iteration.tensors) {
      if (times.due_ns != kUnknown) continue;
      const bool is_covered = last_wait_ns >= times.ready_ns;
      times.due_ns = is_covered ? last_wait_ns : std::max(iteration.length_ns, times.ready_ns);
    }
    if (kept_.size() == kKeptCount) kept_.pop_front();
    kept_.push_back(std::move(iteration));
    ++iteration_count_;
  }
}

bool ProgramTimes::IsAlike(const TimedIteration& iteration, const std::vector<TensorTimes>& least,
                           int64_t slack_ns) const {
  if (iteration.length_ns - length_ns() > slack_ns) return false;
  for (size_t i = 0; i < tensor_count_; ++i) {
    if (iteration.tensors[i].ready_ns - least[i].ready_ns > slack_ns) return false;
    if (iteration.tensors[i].due_ns - least[i].due_ns > slack_ns) return false;
  }
  return true;
}

}  // namespace lmdbio::sync
