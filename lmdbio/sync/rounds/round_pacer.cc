#include "lmdbio/sync/rounds/round_pacer.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "lmdbio/ranks/health/health.h"

namespace lmdbio::sync {
namespace {

// Sleep between two tests of an exchange: short against a cycle, long against the cost of a test.
constexpr auto kTestPause = std::chrono::microseconds(50);

// "gs" sends a time in one 64-bit word, in units of 1/64 of the cycle time.
constexpr int kParts = 64;

}  // namespace

// MPI keeps the core while it waits. With "event" over MPI the rank therefore tests and sleeps, as
// with "nbcs".
RoundPacer::RoundPacer(Transport& transport, Coordinator& coordinator, const PacingOptions& options,
                       std::function<Status()> on_nap, RoundClock& clock)
    : transport_(transport),
      coordinator_(coordinator),
      clock_(clock),
      on_nap_(std::move(on_nap)),
      cycle_time_(options.cycle_time),
      gs_cycles_(options.gs_cycles),
      is_cyclic_(options.pacing != "event"),
      is_gs_(options.pacing == "gs"),
      tests_and_sleeps_(options.pacing == "nbcs" ||
                        (options.pacing == "event" && transport.blocks_in_wait())),
      cycle_began_(clock.Now()) {}

Status RoundPacer::TestAndSleep() {
  auto next_nap = clock_.Now() + ranks::kHealthNap;
  while (true) {
    LMDBIO_TRY(const bool is_over, transport_.Test());
    if (is_over) return {};
    clock_.SleepFor(kTestPause);
    if (clock_.Now() < next_nap) continue;
    LMDBIO_TRY_VOID(on_nap_());
    next_nap = clock_.Now() + ranks::kHealthNap;
  }
}

Result<Reply> RoundPacer::Make(Exchange exchange) {
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

// The minimum of the times of all ranks, in one intersection. A rank encodes a time of n parts as
// the lowest n bits of a word. The bitwise AND of such words has as many bits as the smallest.
Result<std::chrono::microseconds> RoundPacer::LeastOfAll(std::chrono::microseconds mine) {
  if (cycle_time_.count() == 0) return mine;
  const auto parts =
      static_cast<int>(std::clamp<int64_t>(mine.count() * kParts / cycle_time_.count(), 0, kParts));
  const uint64_t word = parts == kParts ? ~uint64_t{0} : (uint64_t{1} << parts) - 1;
  LMDBIO_TRY(const Reply reply, Make({.words = {word}, .bytes = {}}));
  return cycle_time_ * std::popcount(reply.words.at(0)) / kParts;
}

// The sleep is the cycle time less the duration of the last round, and never negative (dissertation
// 6.2.2). So a late rank stays late. With "gs" all ranks sleep for the minimum, so the late rank
// catches up.
Status RoundPacer::SleepToNextCycle() {
  const auto spent =
      std::chrono::duration_cast<std::chrono::microseconds>(clock_.Now() - cycle_began_);
  auto sleep = std::max(cycle_time_ - spent, std::chrono::microseconds(0));
  if (is_gs_ && ++cycle_count_ % gs_cycles_ == 0) {
    LMDBIO_TRY(sleep, LeastOfAll(sleep));
  }
  if (sleep.count() > 0) clock_.SleepFor(sleep);
  cycle_began_ = clock_.Now();
  return {};
}

// The coordinator ends the loop. The replies that decide about the next exchange are the same on
// every rank, so no rank begins one that the others skip.
Status RoundPacer::Run() {
  std::optional<Exchange> exchange = coordinator_.BeginRound();
  while (exchange) {
    LMDBIO_TRY(Reply reply, Make(std::move(*exchange)));
    LMDBIO_TRY(exchange, coordinator_.Continue(std::move(reply)));
  }
  return {};
}

}  // namespace lmdbio::sync
