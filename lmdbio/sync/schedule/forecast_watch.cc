#include "lmdbio/sync/schedule/forecast_watch.h"

#include <algorithm>

#include <fmt/format.h>

#include "lmdbio/sync/schedule/predict.h"

namespace lmdbio::sync {
namespace {

using ForecastFault = WrongForecast::ForecastFault;

// 15 %. By division, because the product may overflow.
int64_t SlackOf(int64_t expected_ns) { return expected_ns / 20 * 3; }

bool IsFarFrom(int64_t length_ns, int64_t expected_ns) {
  const int64_t slack_ns = SlackOf(expected_ns);
  return length_ns - expected_ns > slack_ns || expected_ns - length_ns > slack_ns;
}

}  // namespace

void ForecastWatch::CallSums::Add(const CallSums& other) {
  expected_ns = AddNs(expected_ns, other.expected_ns);
  taken_ns = AddNs(taken_ns, other.taken_ns);
  slow_ns = AddNs(slow_ns, other.slow_ns);
  fast_ns = AddNs(fast_ns, other.fast_ns);
}

void ForecastWatch::OnCall(const TransferSample& call, TransferStart start) {
  const int64_t expected_ns = model_.TimeOf(call.bytes);
  const bool is_slow = call.ns - expected_ns > expected_ns / 4;
  const bool is_fast = expected_ns - call.ns > expected_ns / 5;
  CallSums& sums = start == TransferStart::kGoesOn ? going_on_ : meeting_;
  sums.Add({expected_ns, call.ns, is_slow ? expected_ns : 0, is_fast ? expected_ns : 0});
}

void ForecastWatch::OnIterationEnd(int64_t now_ns) {
  const bool is_whole = iteration_end_ >= 0;
  const int64_t length_ns = now_ns - std::exchange(iteration_end_, now_ns);
  CallSums calls = std::exchange(going_on_, {});
  const CallSums meeting = std::exchange(meeting_, {});
  if (!is_whole) return;
  ++iteration_count_;
  const int64_t all_expected_ns = AddNs(calls.expected_ns, meeting.expected_ns);
  const bool may_be_late = 3 * calls.expected_ns < meeting.expected_ns;
  if (may_be_late) calls.Add(meeting);
  if (!IsWrong(calls, length_ns)) {
    wrong_count_ = 0;
    wrong_calls_ = {};
    wrong_expected_ns_ = 0;
    wrong_longer_ns_ = 0;
    return;
  }
  wrong_calls_.Add(calls);
  wrong_expected_ns_ = AddNs(wrong_expected_ns_, all_expected_ns);
  wrong_longer_ns_ = AddNs(wrong_longer_ns_, length_ns - expected_.length_ns);
  if (++wrong_count_ < wrong_in_row_) return;
  wrong_ = {.fault = FaultOfWrong(),
            .may_be_late = may_be_late,
            .is_from_begin = iteration_count_ <= uint64_t{2} * wrong_count_,
            .iteration_count = wrong_count_,
            .expected_ns = expected_.length_ns,
            .length_ns = length_ns,
            .mean_length_ns = AddNs(expected_.length_ns, wrong_longer_ns_ / wrong_count_),
            .expected_calls_ns = wrong_calls_.expected_ns,
            .calls_ns = wrong_calls_.taken_ns};
}

// Calls that do not count are assumed to be longer in the same proportion.
ForecastFault ForecastWatch::FaultOfWrong() const {
  if (wrong_calls_.are_slow()) return ForecastFault::kSlowerNetwork;
  if (wrong_calls_.are_fast()) return ForecastFault::kFasterNetwork;
  double calls_longer_ns = 0;
  if (wrong_calls_.expected_ns > 0) {
    const auto expected_ns = static_cast<double>(wrong_calls_.expected_ns);
    const auto taken_ns = static_cast<double>(wrong_calls_.taken_ns);
    calls_longer_ns =
        (taken_ns - expected_ns) / expected_ns * static_cast<double>(wrong_expected_ns_);
  }
  const double half_ns = static_cast<double>(wrong_longer_ns_) / 2;
  if (wrong_longer_ns_ > 0) {
    return calls_longer_ns > half_ns ? ForecastFault::kSlowerNetwork
                                     : ForecastFault::kLongerProgram;
  }
  return calls_longer_ns < half_ns ? ForecastFault::kFasterNetwork : ForecastFault::kShorterProgram;
}

bool ForecastWatch::IsWrong(const CallSums& calls, int64_t length_ns) const {
  if (calls.are_slow()) return IsWorthIt(WithSpread(expected_.length_ns), length_ns);
  if (calls.are_fast()) return IsWorthIt(WithSpread(expected_.computing_ns), length_ns);
  return IsFarFrom(length_ns, expected_.length_ns);
}

int64_t ForecastWatch::WithSpread(int64_t ns) const {
  return AddNs(ns, std::min(expected_.spread_ns, SlackOf(expected_.length_ns)));
}

std::string WrongForecast::Text() const {
  constexpr double kMillisecondNs = 1e6;
  std::string cause;
  switch (fault) {
    case ForecastFault::kSlowerNetwork:
      cause = may_be_late ? "the network is slower, or a rank is late" : "the network is slower";
      break;
    case ForecastFault::kFasterNetwork:
      cause = "the network is faster";
      break;
    case ForecastFault::kLongerProgram:
      cause = "the program computes longer";
      break;
    case ForecastFault::kShorterProgram:
      cause = "the program computes less";
      break;
  }
  std::string calls;
  if (expected_calls_ns > 0) {
    calls = fmt::format(", and calls {:.2f} times as long as predicted",
                        static_cast<double>(calls_ns) / static_cast<double>(expected_calls_ns));
  }
  return fmt::format("{} in {} iterations: the last one took {:.2f} ms instead of {:.2f}{}", cause,
                     iteration_count, static_cast<double>(length_ns) / kMillisecondNs,
                     static_cast<double>(expected_ns) / kMillisecondNs, calls);
}

}  // namespace lmdbio::sync
