// tests/campaign/kills/kills_log.h - the log of a rank, in memory that stays when it is killed.
#ifndef LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_LOG_H_
#define LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_LOG_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/status.h"
#include "tests/campaign/kills/kills_case.h"
#include "tests/support/shared_bytes.h"

namespace lmdbio::test {

int64_t MonotonicNs();

// A record, and its position in the stream.
struct LoggedRecord {
  uint64_t position = 0;
  uint64_t digest = 0;
};

// A state that a rank has saved.
struct LoggedState {
  std::string text;
  bool is_last = false;  // no batch of the epochs is left
};

// The batches and states of a rank in a run, without those that it has taken back (Restore).
struct KillTimeline {
  std::vector<std::vector<LoggedRecord>> batches;
  std::map<uint64_t, LoggedState> states;  // by the number of batches before it
};

// The log of a rank: written by it alone, read by others at any time.
class KillLog {
 public:
  enum class End : uint32_t { kNone, kFinished, kFailed };

  // memory  [kBytes], zeros at first
  static constexpr size_t kBytes = size_t{8} << 20;
  explicit KillLog(std::byte* memory);

  void Enter(KillPhase phase);
  KillPhase phase() const;

  // The signal comes at this time, unless the rank has ended.
  void ExpectSignal(int64_t at_ns);
  int64_t signal_ns() const;  // 0: it is not expected

  // One batch, its records, and the state after it. A batch is there as a whole or not at all.
  void AddBatch(const std::vector<LoggedRecord>& records);
  void AddState(const LoggedState& state);
  // The rank goes back to the state after its first `batch_count` batches.
  void GoBack(uint64_t batch_count);
  KillTimeline timeline() const;

  void Finish();
  void Fail(const Error& error);
  End end() const;
  int64_t end_ns() const;  // of the first error, or of the last batch
  ErrorCode code() const;
  std::string text() const;
  // All objects of the library are gone.
  void Leave();
  int64_t left_ns() const;  // 0: not yet

 private:
  struct LogMemory;
  void Add(const LoggedRecord& entry);
  void Publish();
  void SetEnd(End end);

  LogMemory* memory_;
  uint32_t entry_count_ = 0;  // of the writer
};

// The logs of all ranks of a run.
class KillLogs {
 public:
  explicit KillLogs(int rank_count);
  KillLog& of(int rank) { return logs_[static_cast<size_t>(rank)]; }

 private:
  SharedBytes memory_;
  std::vector<KillLog> logs_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_CAMPAIGN_KILLS_KILLS_LOG_H_
