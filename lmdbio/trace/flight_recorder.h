// lmdbio/trace/flight_recorder.h - the flight record: the last operations of this rank.
//
// After a failure the flight record shows the operations that were in progress. It is a ring buffer
// of fixed size. Recording takes no lock and allocates nothing, so it is always on.
//
// Source: docs/sync.md "Observability".
#ifndef LMDBIO_TRACE_FLIGHT_RECORDER_H_
#define LMDBIO_TRACE_FLIGHT_RECORDER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmdbio::trace {

enum class FlightKind : uint8_t {
  kSubmitted,    // the program submitted an operation on a tensor
  kAgreed,       // all ranks have submitted it
  kBegun,        // a collective call was begun
  kDone,         // a tensor is done
  kFailed,       // a tensor has failed
  kPlanAdopted,  // a plan is followed from now on
  kPlanEnded,    // the plan is abandoned
  kStalled,      // a tensor was reported that some rank has not submitted
  kStaged,       // values of tensors on a GPU have reached the host
};

// "submitted", "agreed", ...
std::string_view FlightKindName(FlightKind kind);

// Details of an operation. Fields that do not apply stay at 0.
struct FlightDetail {
  uint64_t number = 0;      // of the submission or the plan; counts from 1
  uint64_t bytes = 0;       // moved, or to be moved
  uint64_t collective = 0;  // of the call that moves them; counts from 1
};

// Threads: any, for every method.
class FlightRecorder {
 public:
  // Bytes kept of a name; of a longer name the beginning and the end.
  static constexpr size_t kNameBytesMax = 80;

  // capacity  [> 0] number of kept events, 128 bytes each
  explicit FlightRecorder(uint32_t capacity = 1024);

  // Records an event at the present time. The event is lost if its slot is still being written by
  // another thread, which requires `capacity` newer events during one call of Record.
  // Cost: no allocation, no lock, no system call; some tens of nanoseconds, mostly for the clock
  void Record(FlightKind kind, std::string_view name = {}, FlightDetail detail = {});
  // The same, at a given time of the steady clock.
  void RecordAt(int64_t steady_ns, FlightKind kind, std::string_view name, FlightDetail detail);

  // The kept events, oldest first, one line each:
  // "14:03:07.123456 UTC  done       'conv1' number 17, 4096 bytes, collective 3". The time of day
  // is that of the host, so that the records of several ranks can be compared.
  std::vector<std::string> Lines() const;

  // Number of events since the construction.
  uint64_t recorded_count() const { return next_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kNameWords = kNameBytesMax / sizeof(uint64_t);
  // A slot's state is 0 if it was never used, 2n + 1 while event n is being written to it, and
  // 2n + 2 after that.
  struct alignas(64) EventSlot {
    std::atomic<uint64_t> state{0};
    std::atomic<uint64_t> time_ns{0}, number{0}, bytes{0}, collective{0};
    std::atomic<uint64_t> kind_and_name_bytes{0};
    std::array<std::atomic<uint64_t>, kNameWords> name{};
  };
  static_assert(sizeof(EventSlot) == 128);

  struct Event;
  static bool Read(const EventSlot& slot, Event& event);

  uint32_t capacity_;
  std::unique_ptr<EventSlot[]> slots_;
  std::atomic<uint64_t> next_{0};
  int64_t day_minus_steady_ns_;  // time of day minus steady clock
};

}  // namespace lmdbio::trace
#endif  // LMDBIO_TRACE_FLIGHT_RECORDER_H_
