// lmdbio/trace/flight_recorder.h - the last operations of this rank, always kept.
//
// For the question that comes after a failure: what was under way? A ring of fixed size, written
// without a lock and without memory from anywhere, so cheap that nobody has a reason to switch it
// off.
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
  kSubmitted,    // the program asked for an operation on a tensor
  kAgreed,       // all ranks have asked for it
  kBegun,        // a collective call was begun
  kDone,         // a tensor is done
  kFailed,       // a tensor has failed
  kPlanAdopted,  // a plan is followed from now on
  kPlanEnded,    // and does not fit any more
  kStalled,      // a tensor was reported that some rank has not submitted
};

// "submitted", "agreed", ...
std::string_view FlightKindName(FlightKind kind);

// What there is to say about an operation; what does not apply stays at 0.
struct FlightDetail {
  uint64_t number = 0;      // of the submission or the plan; counts from 1
  uint64_t bytes = 0;       // moved, or to be moved
  uint64_t collective = 0;  // of the call that moves them; counts from 1
};

// Threads: any, for every method.
class FlightRecorder {
 public:
  // So much of a name is kept; of longer ones the beginning and the end.
  static constexpr size_t kNameBytesMax = 80;

  // capacity  [> 0] events that are kept, 128 bytes each
  explicit FlightRecorder(uint32_t capacity = 1024);

  // Cost: no allocation, no lock, no system call; some tens of nanoseconds, most of it the clock.
  // An event is lost where the ring has gone round within another's Record, which takes `capacity`
  // events in that time.
  void Record(FlightKind kind, std::string_view name = {}, FlightDetail detail = {});
  // The same, at a time of the steady clock that the caller knows.
  void RecordAt(int64_t steady_ns, FlightKind kind, std::string_view name, FlightDetail detail);

  // What is kept, oldest first, a line each:
  // "14:03:07.123456 UTC  done       'conv1' number 17, 4096 bytes, collective 3". The time of day
  // is this host's, so that records of several ranks can be laid side by side.
  std::vector<std::string> Lines() const;

  // Since the recorder was made.
  uint64_t recorded_count() const { return next_.load(std::memory_order_relaxed); }

 private:
  static constexpr size_t kNameWords = kNameBytesMax / sizeof(uint64_t);
  // A slot's state is 0 if it was never used, 2n + 1 while event n is written to it and 2n + 2 once
  // it is there.
  struct alignas(64) Slot {
    std::atomic<uint64_t> state{0};
    std::atomic<uint64_t> time_ns{0}, number{0}, bytes{0}, collective{0};
    std::atomic<uint64_t> kind_and_name_bytes{0};
    std::array<std::atomic<uint64_t>, kNameWords> name{};
  };
  static_assert(sizeof(Slot) == 128);

  struct Event;
  static bool Read(const Slot& slot, Event& event);

  uint32_t capacity_;
  std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> next_{0};
  int64_t day_minus_steady_ns_;  // what makes a time of day of one of the steady clock
};

}  // namespace lmdbio::trace
#endif  // LMDBIO_TRACE_FLIGHT_RECORDER_H_
