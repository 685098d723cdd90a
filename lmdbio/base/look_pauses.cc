#include <sys/prctl.h>

#include <algorithm>
#include <thread>

#include "lmdbio/base/thread_times.h"

namespace lmdbio {
namespace {

constexpr int kLeastSlackNs = 1;

}  // namespace

LookPauses::~LookPauses() {
  if (slack_before_) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(*slack_before_));
}

void LookPauses::Pause() {
  const auto waited = std::chrono::steady_clock::now() - began_;
  if (waited < kLookTime) return std::this_thread::yield();
  if (!slack_before_) {
    const int slack_ns = ::prctl(PR_GET_TIMERSLACK);
    // A thread of a realtime policy has no slack, and the kernel keeps none for it.
    if (slack_ns > 0 && ::prctl(PR_SET_TIMERSLACK, kLeastSlackNs) == 0) slack_before_ = slack_ns;
  }
  std::this_thread::sleep_for(
      std::clamp<std::chrono::steady_clock::duration>(waited / kPart, kPauseMin, kPauseMax));
}

}  // namespace lmdbio
