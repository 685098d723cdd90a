#include "lmdbio/sync/schedule/program_clock.h"

#include "lmdbio/base/check.h"

namespace lmdbio::sync {

void ProgramClock::BeginWait(std::thread::id thread, int64_t now_ns) {
  Advance(now_ns);
  std::erase_if(waiters_, [now_ns](const auto& one) {
    return one.second.waiting == 0 && now_ns - one.second.seen_ns > kForgottenAfterNs;
  });
  WaitingThread& waiter = waiters_[thread];
  if (waiter.waiting++ == 0) ++waiting_count_;
}

void ProgramClock::EndWait(std::thread::id thread, int64_t now_ns) {
  Advance(now_ns);
  const auto found = waiters_.find(thread);
  LMDBIO_CHECK(found != waiters_.end() && found->second.waiting > 0);
  found->second.seen_ns = now_ns;
  if (--found->second.waiting == 0) --waiting_count_;
}

int64_t ProgramClock::Read(int64_t now_ns) {
  Advance(now_ns);
  return program_ns_;
}

void ProgramClock::Advance(int64_t now_ns) {
  if (last_ns_ >= 0 && now_ns > last_ns_ && !stands_still()) program_ns_ += now_ns - last_ns_;
  if (now_ns > last_ns_) last_ns_ = now_ns;
}

}  // namespace lmdbio::sync
