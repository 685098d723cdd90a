#include "lmdbio/sync/rounds/round_driver.h"

#include <utility>

namespace lmdbio::sync {
namespace {

// A rank that waits for peers without wake-ups begins another round after this pause.
constexpr auto kRetryPause = std::chrono::milliseconds(1);

}  // namespace

RoundDriver::RoundDriver(Transport& transport, Coordinator& coordinator,
                         const PacingOptions& options, std::function<Status()> on_nap,
                         GroupPatience patience)
    : transport_(transport),
      coordinator_(coordinator),
      pacer_(transport, coordinator, options, std::move(on_nap)),
      groups_(coordinator, std::move(patience)),
      last_progress_(Clock::now()) {}

Status RoundDriver::AwaitCycle() {
  return pacer_.is_cyclic() ? pacer_.SleepToNextCycle() : Status();
}

bool RoundDriver::TakeDue(Clock::time_point now) {
  groups_.Look(now);
  if (pacer_.is_cyclic()) return true;
  const bool is_called = transport_.take_ring();
  const bool is_demanded = std::exchange(is_demanded_, false);
  // Wake-ups do not cross hosts. So a root that is idle joins a round now and then, in case that
  // ranks of another host wait for the tensors of this one. The other ranks of its host must join.
  const bool is_idle_too_long = !transport_.hears_peers() && now - last_progress_ > kIdleRoundPause;
  if (is_idle_too_long) transport_.Ring();
  return coordinator_.has_pending() || is_called || is_demanded || is_idle_too_long;
}

Result<std::vector<Response>> RoundDriver::Run(const std::vector<std::string>& stalled) {
  if (!stalled.empty()) coordinator_.MarkStalled(stalled);
  last_progress_ = Clock::now();
  LMDBIO_TRY_VOID(pacer_.Run());
  std::vector<Response> responses = coordinator_.TakeResponses();
  if (!responses.empty()) last_progress_ = Clock::now();
  return responses;
}

// A rank with an unanswered request joins the next round of its peers. If the transport cannot
// notice that a peer has come, the rank begins another round after a short pause.
IdleWait RoundDriver::idle_wait() const {
  const bool waits_for_peers = coordinator_.has_pending();
  return {.limit = waits_for_peers && !transport_.hears_peers() ? kRetryPause : kIdleTick,
          .wake_on = waits_for_peers ? WakeOn::kOrPeerCame : WakeOn::kWakeOrRing,
          // Fewer submissions of the plan complete no group, so they lead to no round.
          .submission_count = groups_.missing_count()};
}

}  // namespace lmdbio::sync
