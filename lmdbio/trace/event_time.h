// lmdbio/trace/event_time.h - the clocks of timelines and flight records.
#ifndef LMDBIO_TRACE_EVENT_TIME_H_
#define LMDBIO_TRACE_EVENT_TIME_H_

#include <chrono>
#include <cstdint>

namespace lmdbio::trace {

template <typename Clock>
int64_t NanosecondsOf() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// Nanoseconds since the epochs of the steady clock, and of the time of day.
inline int64_t SteadyNow() { return NanosecondsOf<std::chrono::steady_clock>(); }
inline int64_t DayNow() { return NanosecondsOf<std::chrono::system_clock>(); }

}  // namespace lmdbio::trace
#endif  // LMDBIO_TRACE_EVENT_TIME_H_
