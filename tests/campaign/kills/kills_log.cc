#include "tests/campaign/kills/kills_log.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <stdexcept>

namespace lmdbio::test {
namespace {

constexpr size_t kStateBytes = 1024;
constexpr size_t kStatesMax = 512;
// Two epochs of the largest database, of which half came twice, on one rank.
constexpr size_t kEntriesMax = 400'000;
constexpr size_t kErrorBytes = 2048;

// Positions that no record has.
constexpr uint64_t kBatchMark = ~uint64_t{0};      // a batch begins
constexpr uint64_t kStateMark = ~uint64_t{0} - 1;  // digest: the number of the state, last or not
constexpr uint64_t kBackMark = ~uint64_t{0} - 2;   // digest: the number of batches that stay

}  // namespace

int64_t MonotonicNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

struct KillLog::LogMemory {
  std::atomic<uint32_t> phase;
  std::atomic<int64_t> signal_ns;
  std::atomic<int64_t> end_ns;
  std::atomic<int64_t> left_ns;
  std::atomic<End> end;
  ErrorCode code;
  std::array<char, kErrorBytes> text;
  uint32_t state_count;
  std::array<std::array<char, kStateBytes>, kStatesMax> states;
  std::atomic<uint32_t> entry_count;  // those of whole batches
  std::array<LoggedRecord, kEntriesMax> entries;
};

KillLog::KillLog(std::byte* memory) : memory_(std::launder(reinterpret_cast<LogMemory*>(memory))) {
  static_assert(sizeof(LogMemory) <= kBytes);
}

void KillLog::Enter(KillPhase phase) { memory_->phase.store(static_cast<uint32_t>(phase)); }

KillPhase KillLog::phase() const { return static_cast<KillPhase>(memory_->phase.load()); }

void KillLog::ExpectSignal(int64_t at_ns) { memory_->signal_ns.store(at_ns); }

int64_t KillLog::signal_ns() const { return memory_->signal_ns.load(); }

void KillLog::Add(const LoggedRecord& entry) {
  if (entry_count_ == kEntriesMax) throw std::runtime_error("the log of a rank is full");
  memory_->entries[entry_count_++] = entry;
}

void KillLog::Publish() { memory_->entry_count.store(entry_count_); }

void KillLog::AddBatch(const std::vector<LoggedRecord>& records) {
  Add({kBatchMark, 0});
  for (const LoggedRecord& record : records) Add(record);
  Publish();
}

void KillLog::AddState(const LoggedState& state) {
  if (memory_->state_count == kStatesMax || state.text.size() >= kStateBytes) {
    throw std::runtime_error("no room for a state");
  }
  const uint32_t number = memory_->state_count++;
  state.text.copy(memory_->states[number].data(), kStateBytes - 1);
  Add({kStateMark, 2 * uint64_t{number} + (state.is_last ? 1 : 0)});
  Publish();
}

void KillLog::GoBack(uint64_t batch_count) {
  Add({kBackMark, batch_count});
  Publish();
}

KillTimeline KillLog::timeline() const {
  KillTimeline timeline;
  const uint32_t count = memory_->entry_count.load();
  for (uint32_t i = 0; i < count; ++i) {
    const LoggedRecord& entry = memory_->entries[i];
    if (entry.position == kBatchMark) {
      timeline.batches.emplace_back();
    } else if (entry.position == kStateMark) {
      timeline.states[timeline.batches.size()] = {memory_->states[entry.digest / 2].data(),
                                                  entry.digest % 2 == 1};
    } else if (entry.position == kBackMark) {
      timeline.batches.resize(entry.digest);
      timeline.states.erase(timeline.states.upper_bound(entry.digest), timeline.states.end());
    } else {
      timeline.batches.back().push_back(entry);
    }
  }
  return timeline;
}

void KillLog::SetEnd(End end) {
  memory_->end_ns.store(MonotonicNs());
  memory_->end.store(end);
}

void KillLog::Finish() { SetEnd(End::kFinished); }

void KillLog::Fail(const Error& error) {
  memory_->code = error.code();
  error.message().copy(memory_->text.data(), kErrorBytes - 1);
  SetEnd(End::kFailed);
}

KillLog::End KillLog::end() const { return memory_->end.load(); }
int64_t KillLog::end_ns() const { return memory_->end_ns.load(); }
ErrorCode KillLog::code() const { return memory_->code; }
std::string KillLog::text() const { return memory_->text.data(); }
void KillLog::Leave() { memory_->left_ns.store(MonotonicNs()); }
int64_t KillLog::left_ns() const { return memory_->left_ns.load(); }

KillLogs::KillLogs(int rank_count) : memory_(static_cast<size_t>(rank_count) * KillLog::kBytes) {
  for (int rank = 0; rank < rank_count; ++rank) {
    logs_.emplace_back(memory_.bytes().data() + static_cast<size_t>(rank) * KillLog::kBytes);
  }
}

}  // namespace lmdbio::test
