#include "lmdbio/sync/engine/task.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/check.h"
#include "lmdbio/device/device_stream.h"
#include "lmdbio/sync/engine/submission_queue.h"
#include "lmdbio/sync/engine/sync_tracer.h"
#include "lmdbio/sync/over_device/event_wait.h"

namespace lmdbio::sync {
namespace {

// Limits are cut to this, so that no deadline overflows. Wait repeats it.
constexpr auto kLongestWait = std::chrono::milliseconds(std::chrono::hours(24 * 365));
// No wake-up is lost. The longest sleep only bounds the delay that a defect would cause.
constexpr auto kNap = std::chrono::milliseconds(1000);
// How long a thread that has found a void result waits for the name of the rank that has failed.
constexpr auto kFailureLimit = std::chrono::seconds(5);
constexpr auto kFailurePause = std::chrono::milliseconds(1);

}  // namespace

bool Handle::State::is_ready() const {
  if (ready == nullptr) return true;
  const Result<bool> is_there = ready->IsDone();
  return !is_there || *is_there;
}

bool Handle::State::is_over() const {
  if (!is_done.load()) return false;
  if (output.is_in == nullptr) return true;
  const Result<bool> is_there = output.is_in->IsDone();
  return !is_there || *is_there;
}

Status Handle::State::status() const {
  if (failure) return Fail(failure->Copy());
  if (output.is_in == nullptr) return {};
  const Result<bool> is_there = output.is_in->IsDone();
  if (!is_there) return Fail(is_there.error().Copy().Within(fmt::format("tensor '{}'", name())));
  if (output.result_state == nullptr || !output.result_state->is_void()) return {};
  // The helper thread soon knows which rank has failed, if it does not yet.
  Status failed = CheckOthers();
  const auto until = std::chrono::steady_clock::now() + kFailureLimit;
  while (failed && !queue.expired() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(kFailurePause);
    failed = CheckOthers();
  }
  if (!failed) return failed;
  return Fail(VoidSumError(name()));
}

Error VoidSumError(const std::string& tensor) {
  return {ErrorCode::kPeerFailed,
          fmt::format("tensor '{}': a rank has failed while GPUs reduced it", tensor)};
}

Status Handle::State::CheckOthers() const {
  const auto its_queue = queue.lock();
  return output.result_state != nullptr && its_queue != nullptr ? its_queue->CheckGoingOn()
                                                                : Status();
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
  if (!state_->is_over()) return false;
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

// Sleeps until the helper thread has finished with the operation, and then waits by `rest` for the
// result: it returns whether it is there.
template <typename Rest>
Result<bool> Handle::WaitAndTell(std::chrono::milliseconds limit, const Rest& rest) {
  limit = std::clamp(limit, std::chrono::milliseconds(0), kLongestWait);
  const auto until = std::chrono::steady_clock::now() + limit;
  const auto queue = state_->queue.lock();
  const WaitBegin begin = queue ? queue->BeginWait() : WaitBegin();
  const auto is_over = [this] { return state_->is_done.load(); };
  while (!is_over()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) break;
    state_->done.WaitUnless(is_over, std::min(until, now + kNap));
  }
  using Got = SubmissionQueue::Got;
  Result<bool> has_result = false;
  if (is_over()) has_result = rest(until);
  if (queue) {
    // A query without a result is no wait, and gets no span in the timeline.
    const bool is_there = !has_result || *has_result;
    const bool has_waited = is_there || limit.count() > 0;
    queue->EndWait(has_waited ? state_->name() : "", is_there ? Got::kResult : Got::kNothing,
                   begin);
  }
  return has_result;
}

Result<bool> Handle::WaitFor(std::chrono::milliseconds limit) {
  return WaitAndTell(limit, [this](auto until) -> Result<bool> {
    if (state_->failure || state_->output.is_in == nullptr) {
      LMDBIO_TRY_VOID(state_->status());
      return true;
    }
    const Result<bool> is_there =
        AwaitEvent(*state_->output.is_in, until, [this] { return state_->CheckOthers(); });
    if (!is_there) {
      return Fail(is_there.error().Copy().Within(fmt::format("tensor '{}'", state_->name())));
    }
    if (*is_there) LMDBIO_TRY_VOID(state_->status());
    return *is_there;
  });
}

Result<bool> Handle::WaitOnFor(device::StreamHandle stream, std::chrono::milliseconds limit) {
  return WaitAndTell(limit, [this, stream](auto) -> Result<bool> {
    if (state_->failure) return Fail(state_->failure->Copy());
    if (state_->output.is_in == nullptr) return true;
    LMDBIO_TRY_VOID(state_->CheckOthers());
    auto waiting = device::DeviceStream::Borrow(state_->output.is_in->context(), stream);
    LMDBIO_TRY(const bool is_captured, waiting.IsCaptured());
    if (is_captured) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("tensor '{}': a stream that is captured into a graph cannot wait for "
                              "it",
                              state_->name()));
    }
    LMDBIO_TRY_VOID(waiting.Await(*state_->output.is_in));
    return true;
  });
}

Status Handle::WaitOn(device::StreamHandle stream) {
  while (true) {
    LMDBIO_TRY(const bool is_enqueued, WaitOnFor(stream, kLongestWait));
    if (is_enqueued) return {};
  }
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
