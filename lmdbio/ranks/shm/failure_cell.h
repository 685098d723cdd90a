// lmdbio/ranks/shm/failure_cell.h - the first failure among processes, in memory that they share.
//
// One writer wins: it claims the cell by compare-exchange, writes the failure, and publishes it. A
// reader sees no failure or a whole one. The state of a cell moves in one direction:
//
//   empty -> claimed -> recorded
//                    -> unknown    the writer did not publish in time
//
// A writer needs microseconds from claim to publication. A writer that is killed or stopped between
// them must not hold up its peers. So a reader that has looked at a claimed cell for kWriterLimit
// sets it to unknown (FailureReader). If the writer continues later, its publication is refused.
//
// Source: docs/architecture.md "Failures of ranks".
#ifndef LMDBIO_RANKS_SHM_FAILURE_CELL_H_
#define LMDBIO_RANKS_SHM_FAILURE_CELL_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>

#include "lmdbio/base/status.h"

namespace lmdbio::ranks {

// Whether ranks may still use data that was published before the failure.
enum class FailureUrgency : uint32_t {
  kInOrder,  // yes: they meet the failure behind that data
  kNow,      // no: the data may be wrong
};

struct RecordedFailure {
  ErrorCode code = ErrorCode::kPeerFailed;
  int error_number = 0;  // errno, as Error::error_number
  int rank = -1;         // as the writer gave it; -1: the cause is unknown
  FailureUrgency urgency = FailureUrgency::kNow;
  std::string text;
};

// Zero bytes are an empty cell, so zero-filled shared memory needs no construction.
// Threads: any, of all processes that map the memory. All accesses to the state are sequentially
//          consistent, so the state may be a condition of an EventCount.
class FailureCell {
 public:
  static constexpr size_t kTextBytesMax = 2048;
  static constexpr auto kWriterLimit = std::chrono::milliseconds(600);

  // Records `error`, with its text cut at kTextBytesMax. The caller wakes sleepers afterwards.
  // rank  of the caller, as readers are to see it
  // Returns: true if this is the first failure; false if the cell was claimed already, or a reader
  //          set it to unknown meanwhile
  bool Record(const Error& error, int rank, FailureUrgency urgency = FailureUrgency::kInOrder);

  // No writer has claimed the cell.
  bool is_empty() const { return state_.load() == kEmpty; }
  // Readers see a failure from now on: it is recorded, or its cause is unknown.
  bool is_recorded() const { return state_.load() >= kRecorded; }

  // The failure; nothing as long as is_recorded() is false. With an unknown cause the code is
  // kPeerFailed and the urgency kNow, because the writer may have meant that.
  std::optional<RecordedFailure> Find() const;

 private:
  friend class FailureReader;
  enum CellState : uint32_t { kEmpty, kClaimed, kRecorded, kUnknown };

  std::atomic<uint32_t> state_{kEmpty};
  // Written by the rank that claimed the cell, read once it is recorded.
  int32_t code_ = 0;
  int32_t error_number_ = 0;
  int32_t rank_ = 0;
  FailureUrgency urgency_ = FailureUrgency::kInOrder;
  uint32_t text_bytes_ = 0;
  std::array<char, kTextBytesMax> text_{};
};

static_assert(std::is_standard_layout_v<FailureCell>);

// One process's view of a cell. It measures how long this process has looked at a claimed cell. A
// gap between two looks counts for kWriterLimit at most: in a longer one the whole job may have
// been stopped, with the writer.
// Threads: any.
class FailureReader {
 public:
  // cell  borrowed
  explicit FailureReader(FailureCell& cell) : cell_(cell) {}

  // As FailureCell::Find. Sets a cell to unknown that stays claimed for longer than kWriterLimit.
  // Cost: one load while the cell is empty
  std::optional<RecordedFailure> Look();

 private:
  void LookAtWriter();

  FailureCell& cell_;
  std::mutex mutex_;  // of the rest, which is used while the cell is claimed
  std::optional<std::chrono::steady_clock::time_point> last_look_;
  std::chrono::nanoseconds looked_for_{0};
};

}  // namespace lmdbio::ranks
#endif  // LMDBIO_RANKS_SHM_FAILURE_CELL_H_
