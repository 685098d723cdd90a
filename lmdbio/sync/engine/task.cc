#include "lmdbio/sync/engine/task.h"

#include <algorithm>
#include <utility>

#include "lmdbio/base/check.h"
#include "lmdbio/sync/engine/submission_queue.h"
#include "lmdbio/sync/engine/sync_tracer.h"

namespace lmdbio::sync {
namespace {

// Limits are cut to this, so that no deadline overflows. Wait repeats it.
constexpr auto kLongestWait = std::chrono::milliseconds(std::chrono::hours(24 * 365));
// No wake-up is lost. The longest sleep only bounds the delay that a defect would cause.
constexpr auto kNap = std::chrono::milliseconds(1000);

}  // namespace

Status Handle::State::status() const {
  if (!failure) return {};
  return Fail(failure->Copy());
}

// The callback runs first, so a thread that sees is_done knows that the callback has returned. The
// store publishes all results: readers load is_done before they read them.
void Handle::State::Finish(const Status& how) {
  if (!how) failure.emplace(how.error().Copy());
  if (submission.callback) submission.callback(how);
  is_done.store(true);
}

Handle::Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}
Handle::Handle(Handle&&) noexcept = default;
Handle& Handle::operator=(Handle&&) noexcept = default;
Handle::~Handle() = default;

// The first true counts as a wait: later submissions may depend on this operation. The flag avoids
// the queue's lock in all further calls.
bool Handle::is_done() const {
  if (!state_->is_done.load()) return false;
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
  const auto is_over = [this] { return state_->is_done.load(); };
  while (!is_over()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) break;
    state_->done.WaitUnless(is_over, std::min(until, now + kNap));
  }
  using Got = SubmissionQueue::Got;
  const bool has_result = is_over();
  if (queue) {
    // A query without a result is no wait, and gets no span in the timeline.
    const bool has_waited = has_result || limit.count() > 0;
    queue->EndWait(has_waited ? state_->name() : "", has_result ? Got::kResult : Got::kNothing,
                   began_ns);
  }
  if (!has_result) return false;
  LMDBIO_TRY_VOID(state_->status());
  return true;
}

Bytes Handle::result() const& {
  LMDBIO_CHECK(state_->is_done.load());
  return state_->result;
}

const std::vector<int64_t>& Handle::result_rows() const& {
  LMDBIO_CHECK(state_->is_done.load());
  return state_->result_rows;
}

int32_t Handle::last_joined() const {
  LMDBIO_CHECK(state_->is_done.load());
  return state_->last_joined;
}

}  // namespace lmdbio::sync
