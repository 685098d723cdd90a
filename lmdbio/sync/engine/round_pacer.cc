#include "lmdbio/sync/engine/round_pacer.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <thread>
#include <utility>

#include "lmdbio/ranks/health/health.h"

namespace lmdbio::sync {
namespace {

// Who tests sleeps so long between two tests: short against a cycle, long against what a test
// costs.
constexpr auto kTestPause = std::chrono::microseconds(50);

// A time as so many of 64 parts of the cycle time, in ones: the intersection of several is the
// least.
constexpr int kParts = 64;

}  // namespace

RoundPacer::RoundPacer(Transport& transport, sync::Coordinator& coordinator,
                       const SyncOptions& options, std::function<Status()> on_nap)
    : transport_(transport),
      coordinator_(coordinator),
      on_nap_(std::move(on_nap)),
      cycle_time_(options.cycle_time),
      gs_cycles_(options.gs_cycles),
      is_cyclic_(options.pacing != "event"),
      is_gs_(options.pacing == "gs"),
      tests_and_sleeps_(options.pacing == "nbcs" ||
                        (options.pacing == "event" && transport.blocks_in_wait())),
      cycle_began_(Clock::now()) {}

Status RoundPacer::TestAndSleep() {
  auto next_nap = Clock::now() + ranks::kHealthNap;
  while (true) {
    LMDBIO_TRY(const bool is_over, transport_.Test());
    if (is_over) return {};
    std::this_thread::sleep_for(kTestPause);
    if (Clock::now() < next_nap) continue;
    LMDBIO_TRY_VOID(on_nap_());
    next_nap = Clock::now() + ranks::kHealthNap;
  }
}

Result<sync::Reply> RoundPacer::Make(sync::Exchange exchange) {
  ++counters_.exchange_count;
  counters_.exchange_bytes += exchange.words.size() * sizeof(uint64_t) + exchange.bytes.size();
  LMDBIO_TRY_VOID(transport_.Start(std::move(exchange)));
  if (tests_and_sleeps_) {
    LMDBIO_TRY_VOID(TestAndSleep());
    return transport_.TakeReply();
  }
  while (true) {
    LMDBIO_TRY(const bool is_over, transport_.Wait(ranks::kHealthNap));
    if (is_over) return transport_.TakeReply();
    LMDBIO_TRY_VOID(on_nap_());
  }
}

Result<std::chrono::microseconds> RoundPacer::LeastOfAll(std::chrono::microseconds mine) {
  if (cycle_time_.count() == 0) return mine;
  const auto parts =
      static_cast<int>(std::clamp<int64_t>(mine.count() * kParts / cycle_time_.count(), 0, kParts));
  const uint64_t word = parts == kParts ? ~uint64_t{0} : (uint64_t{1} << parts) - 1;
  LMDBIO_TRY(const sync::Reply reply, Make({.words = {word}, .bytes = {}}));
  return cycle_time_ * std::popcount(reply.words.at(0)) / kParts;
}

// The time left of a cycle; none if the last round took longer (dissertation 6.2.2). So a rank that
// is late stays late, but for "gs", where all sleep the least time of all.
Status RoundPacer::SleepToNextCycle() {
  const auto spent =
      std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - cycle_began_);
  auto sleep = std::max(cycle_time_ - spent, std::chrono::microseconds(0));
  if (is_gs_ && ++cycle_count_ % gs_cycles_ == 0) {
    LMDBIO_TRY(sleep, LeastOfAll(sleep));
  }
  if (sleep.count() > 0) std::this_thread::sleep_for(sleep);
  cycle_began_ = Clock::now();
  return {};
}

Status RoundPacer::Run() {
  std::optional<sync::Exchange> exchange = coordinator_.BeginRound();
  while (exchange) {
    LMDBIO_TRY(sync::Reply reply, Make(std::move(*exchange)));
    LMDBIO_TRY(exchange, coordinator_.Continue(std::move(reply)));
  }
  return {};
}

}  // namespace lmdbio::sync
