// lmdbio/sync/schedule/forecast_watch.h - whether iterations take the time that was predicted.
//
// Source: docs/caramel.md "A plan that is wrong".
#ifndef LMDBIO_SYNC_SCHEDULE_FORECAST_WATCH_H_
#define LMDBIO_SYNC_SCHEDULE_FORECAST_WATCH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "lmdbio/sync/schedule/transfer_model.h"

namespace lmdbio::sync {

// Of an iteration, from its begin to that of the next one.
struct ExpectedIteration {
  int64_t length_ns = 0;
  int64_t computing_ns = 0;  // if calls took no time
  int64_t spread_ns = 0;     // most iterations are longer by at most this, because of the program
};

// Whether ranks may have been late for a call.
enum class TransferStart : uint8_t {
  kMeets,   // the first call of a tensor or batch: some rank may not have it yet
  kGoesOn,  // a later slice of a tensor: all ranks have it
};

// How a forecast was wrong.
struct WrongForecast {
  enum class ForecastFault : uint8_t {
    kSlowerNetwork,
    kFasterNetwork,
    kLongerProgram,   // iterations are longer, and not because of calls
    kShorterProgram,  // iterations are shorter, and not because of calls
  };
  ForecastFault fault = ForecastFault::kLongerProgram;
  bool may_be_late = false;      // no slice tells a slower network from a late rank
  bool is_from_begin = false;    // at most as many iterations before these were right
  uint32_t iteration_count = 0;  // the last ones
  int64_t expected_ns = 0;       // of an iteration
  int64_t length_ns = 0;         // of the last one
  int64_t mean_length_ns = 0;    // of these
  int64_t expected_calls_ns = 0;
  int64_t calls_ns = 0;  // of these iterations

  // In words, without a full stop.
  std::string Text() const;
};

// Compares the iterations of a plan with its forecast. An iteration is wrong if
//
//  - most calls take more than 1.25 of the model, and the iteration more than 1.02 of its length
//    and spread: else calls delay nothing, and no plan can gain
//  - most calls take less than 0.8 of the model, and the iteration more than 1.02 of computing and
//    spread
//  - otherwise, if the iteration is more than 15 % longer or shorter
//
// Of the spread, at most 15 % of the length count.
//
// Most calls are those of more than half of the predicted time. Calls that go on with a tensor
// count, if they are a quarter of it, because no rank can be late for them. Otherwise all count.
//
// The forecast is wrong after so many wrong iterations in a row. The iteration in which the watch
// begins does not count. The network is named if most calls were beyond a limit, or if calls make
// up more than half of the time by which the iterations are longer or shorter.
//
// Pure: no clock. Allocates nothing.
// Threads: one at a time.
class ForecastWatch {
 public:
  static constexpr uint32_t kWrongInRow = 3;

  // wrong_in_row  the number of wrong iterations; > 0
  ForecastWatch(TransferModel model, const ExpectedIteration& expected, uint32_t wrong_in_row)
      : model_(std::move(model)), expected_(expected), wrong_in_row_(wrong_in_row) {}

  // Cost: O(log points of the model)
  void OnCall(const TransferSample& call, TransferStart start);
  // All calls of an iteration were made. Cost: O(1)
  // now_ns  of a steady clock
  void OnIterationEnd(int64_t now_ns);

  // None: the forecast is not wrong.
  const std::optional<WrongForecast>& wrong() const& { return wrong_; }
  const std::optional<WrongForecast>& wrong() && = delete;

 private:
  struct CallSums {
    int64_t expected_ns = 0;
    int64_t taken_ns = 0;
    int64_t slow_ns = 0;  // of expected_ns: calls that took more than 1.25 of it
    int64_t fast_ns = 0;  // of expected_ns: calls that took less than 0.8 of it
    bool are_slow() const { return 2 * slow_ns > expected_ns; }
    bool are_fast() const { return 2 * fast_ns > expected_ns; }
    void Add(const CallSums& other);
  };
  bool IsWrong(const CallSums& calls, int64_t length_ns) const;
  int64_t WithSpread(int64_t ns) const;
  WrongForecast::ForecastFault FaultOfWrong() const;

  TransferModel model_;
  const ExpectedIteration expected_;
  const uint32_t wrong_in_row_;
  CallSums meeting_;   // of this iteration
  CallSums going_on_;  // of this iteration
  uint64_t iteration_count_ = 0;
  // Of the last wrong iterations.
  uint32_t wrong_count_ = 0;
  CallSums wrong_calls_;           // those that count
  int64_t wrong_expected_ns_ = 0;  // of all calls
  int64_t wrong_longer_ns_ = 0;    // than predicted; the iterations, and not the calls
  int64_t iteration_end_ = -1;     // of the last one; -1: none yet
  std::optional<WrongForecast> wrong_;
};

}  // namespace lmdbio::sync
#endif  // LMDBIO_SYNC_SCHEDULE_FORECAST_WATCH_H_
