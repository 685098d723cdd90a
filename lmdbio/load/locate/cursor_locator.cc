// The locator of LMM, LMM-DM and LMM-DIO: a cursor over a map, from record to record.
#include <atomic>
#include <chrono>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/load/locate/clocks.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/locate/run_joiner.h"
#include "lmdbio/load/locate/speculative_fetch.h"

namespace lmdbio::load {
namespace {

class CursorLocator final : public Locator {
 public:
  CursorLocator(std::unique_ptr<file::MapSource> source, const file::Database& database,
                std::unique_ptr<CursorHandoff> handoff)
      : source_(std::move(source)),
        database_(database),
        cursor_(database_),
        handoff_(std::move(handoff)),
        fetch_(*source_, database_) {}

  Result<uint64_t> RecordCount() override { return CountRecords(database_); }

  void Expect(RecordIndex first, uint64_t count) override {
    if (!has_begun_) LearnFirst();
    has_begun_ = true;
    fetch_.Expect(first, count);
  }

  bool IsReady() override { return !handoff_ || handoff_->IsHere(); }

  // With several hosts the cursor arrives from the host before this one, and stands on the last
  // record that any host has walked over.
  Result<bool> BeginGroup(const BatchGroup& /*group*/) override {
    fetch_.Peek();
    if (!handoff_) return true;
    const auto start = std::chrono::steady_clock::now();
    LMDBIO_TRY(const auto handed, handoff_->Take());
    Add(turn_s_, SecondsSince(start));
    if (!handed) return false;
    at_ = handed->record;
    is_at_start_ = !handed->is_standing;
    // Reads one page for each level of the tree.
    if (handed->is_standing) LMDBIO_TRY_VOID(cursor_.SeekPosition(handed->position));
    return true;
  }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    if (count == 0) return {};
    // A touch behind the end of a shortened file would end the process, so the size is checked
    // before the cursor touches the map.
    LMDBIO_TRY_VOID(source_->CheckNotShrunk(database_.pages().snapshot().file_size_bytes));
    fetch_.Await();
    LMDBIO_TRY_VOID(StandAt(first));
    RunJoiner runs(sink);
    LocationTally tally = fetch_.Observe();
    for (uint64_t i = 0; i < count; ++i) {
      if (i > 0) LMDBIO_TRY_VOID(Step());
      LMDBIO_TRY(const file::RecordLocation location, cursor_.Place());
      LMDBIO_TRY_VOID(runs.Add({first.value + i}, location));
      tally.Add({first.value + i}, location);
    }
    at_ = first.value + count - 1;
    is_at_start_ = false;
    fetch_.Learn(tally, {at_});
    return runs.Flush();
  }

  // A host that has no record in the group passes the cursor on as it has arrived.
  Status EndGroup() override {
    fetch_.EndGroup();
    if (!handoff_) return {};
    if (is_at_start_) return handoff_->HandOn({});
    return handoff_->HandOn({at_, true, cursor_.position()});
  }

  void Abandon(const Error& why) override {
    if (handoff_) handoff_->HandOnFailure(why);
  }

  void Stop() override {
    if (handoff_) handoff_->Stop();
  }

  LocatorCounters counters() const override {
    return {fetch_.missed_pages(), fetch_.redundant_pages(), fetch_.fetch_s(),
            turn_s_.load(std::memory_order_relaxed)};
  }

 private:
  // Before the first batch, the first record is all that is known (dissertation 4.2.2). An error
  // here shows again when the record is located.
  void LearnFirst() {
    const Result<bool> found = cursor_.First();
    if (!found || !*found) return;
    const Result<file::RecordLocation> location = cursor_.Place();
    if (location) fetch_.LearnFirst(*location, cursor_.key().size());
  }

  Status Step() {
    LMDBIO_TRY(const bool found, cursor_.Next());
    return found ? Status() : Ended();
  }

  Status Ended() const {
    return Fail(ErrorCode::kCorruption,
                fmt::format("{}: the tree holds fewer records than its description says, {}",
                            source_->name(), database_.entry_count()));
  }

  // Moves forward record by record, as LMDB does. Any other move starts at the first record again
  // and reads every leaf page up to the wanted one.
  Status StandAt(RecordIndex record) {
    if (cursor_.standing() && !is_at_start_ && record.value > at_) {
      for (; at_ < record.value; ++at_) LMDBIO_TRY_VOID(Step());
      return {};
    }
    if (record.value == 0) {
      LMDBIO_TRY(const bool found, cursor_.First());
      return found ? Status() : Ended();
    }
    LMDBIO_TRY(const bool found, cursor_.SeekOrdinal(record));
    return found ? Status() : Ended();
  }

  std::unique_ptr<file::MapSource> source_;
  file::Database database_;
  file::Cursor cursor_;
  std::unique_ptr<CursorHandoff> handoff_;  // null on the only host
  SpeculativeFetch fetch_;
  uint64_t at_ = 0;          // the record under the cursor
  bool is_at_start_ = true;  // no host has walked yet, wherever this cursor stands
  bool has_begun_ = false;
  std::atomic<double> turn_s_{0};
};

}  // namespace

Result<std::unique_ptr<Locator>> OpenCursorLocator(const std::string& data_path,
                                                   const std::string& database_name,
                                                   std::unique_ptr<CursorHandoff> handoff) {
  LMDBIO_TRY(auto source, file::MapSource::Open(data_path));
  LMDBIO_TRY(const file::Environment environment, file::Environment::Open(*source));
  file::Database database = environment.Main();
  if (!database_name.empty()) {
    LMDBIO_TRY(database, environment.Named(database_name));
  }
  return std::unique_ptr<Locator>(
      std::make_unique<CursorLocator>(std::move(source), database, std::move(handoff)));
}

}  // namespace lmdbio::load
