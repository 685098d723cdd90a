#include "lmdbio/sync/engine/task.h"

#include <algorithm>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/ranks/shm/futex.h"
#include "lmdbio/sync/engine/submission_queue.h"
#include "lmdbio/sync/engine/sync_tracer.h"

namespace lmdbio::sync {
namespace {

// Longer waits are as good as this one, and can be counted.
constexpr auto kLongestWait = std::chrono::milliseconds(std::chrono::hours(24 * 365));
// A wake-up cannot be lost; this only bounds what a bug would cost.
constexpr auto kNap = std::chrono::milliseconds(1000);

}  // namespace

Status Handle::State::status() const {
  if (!failure) return {};
  return Fail(failure->Copy());
}

void Handle::State::Finish(const Status& how) {
  if (!how) failure.emplace(how.error().Copy());
  if (submission.callback) submission.callback(how);
  is_done.store(1);
}

void Handle::State::WakeWaiters() {
  if (waiter_count.load() > 0) FutexWake(is_done);
}

Handle::Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}
Handle::Handle(Handle&&) noexcept = default;
Handle& Handle::operator=(Handle&&) noexcept = default;
Handle::~Handle() = default;

// What the program submits from now on may depend on it, as after a wait. Once is enough.
bool Handle::is_done() const {
  if (state_->is_done.load() == 0) return false;
  if (!state_->is_known_done.load() && !state_->is_known_done.exchange(true)) {
    if (const auto queue = state_->queue.lock()) queue->TellWaited(state_->name());
  }
  return true;
}

Status Handle::Wait() {
  while (true) {
    LMDBIO_TRY(const bool is_over, WaitFor(kLongestWait));
    if (is_over) return {};
  }
}

Result<bool> Handle::WaitFor(std::chrono::milliseconds limit) {
  const int64_t began_ns = SteadyNanoseconds();
  limit = std::clamp(limit, std::chrono::milliseconds(0), kLongestWait);
  const auto until = std::chrono::steady_clock::now() + limit;
  const auto queue = state_->queue.lock();
  if (queue) queue->BeginWait();
  state_->waiter_count.fetch_add(1);
  const auto is_over = [this] { return state_->is_done.load() != 0; };
  while (!is_over()) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) break;
    FutexWait(state_->is_done, 0, std::min(left, kNap));
  }
  state_->waiter_count.fetch_sub(1);
  using Got = SubmissionQueue::Got;
  const bool has_result = is_over();
  if (queue) {
    const bool has_waited = has_result || limit.count() > 0;
    queue->EndWait(has_waited ? state_->name() : "", has_result ? Got::kResult : Got::kNothing,
                   began_ns);
  }
  if (!has_result) return false;
  LMDBIO_TRY_VOID(state_->status());
  return true;
}

Bytes Handle::result() const {
  LMDBIO_CHECK(state_->is_done.load() != 0);
  return state_->result;
}

const std::vector<int64_t>& Handle::result_rows() const {
  LMDBIO_CHECK(state_->is_done.load() != 0);
  return state_->result_rows;
}

int32_t Handle::last_joined() const {
  LMDBIO_CHECK(state_->is_done.load() != 0);
  return state_->last_joined;
}

}  // namespace lmdbio::sync
