// The locator of LMM, LMM-DM and LMM-DIO: a cursor over a map, from record to record.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
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

// The first leaf pages that the walk requests ahead, and the most. A leaf page names records of
// about half a megabyte, so the kernel's read-ahead, which brings the bytes around a page fault,
// does not reach the next one.
constexpr uint64_t kLeavesAheadFirst = 4;
constexpr uint64_t kLeavesAheadMost = 128;

// Requests leaf pages from the kernel ahead of a cursor that moves forward, many at once. The
// branch page above the cursor names them. Without that, the walk waits for the storage at each of
// them.
class LeafReadAhead {
 public:
  // source, database  borrowed
  LeafReadAhead(const file::MapSource& source, const file::Database& database)
      : source_(source),
        page_bytes_(database.pages().page_format().page_size_bytes()),
        page_count_(database.pages().snapshot().page_count()) {}

  // The cursor has jumped.
  void Restart() {
    leaf_.reset();
    walked_ = 0;
    ahead_ = 0;
  }

  // The cursor has moved to a record, on the same leaf page or on the next one. As much is
  // requested as the walk has used already, so a short stream requests little in vain.
  void Follow(const file::Cursor& cursor) {
    if (leaf_ && *leaf_ == cursor.leaf()) return;
    leaf_ = cursor.leaf();
    ++walked_;
    if (ahead_ > 0) --ahead_;
    const uint64_t wanted = std::min<uint64_t>(
        std::clamp(walked_, kLeavesAheadFirst, kLeavesAheadMost), cursor.following_leaf_count());
    // Half of the pages are still to come when the next ones are requested.
    if (ahead_ > wanted / 2 || ahead_ >= wanted) return;
    for (; ahead_ < wanted; ++ahead_) Request(cursor.following_leaf(static_cast<uint32_t>(ahead_)));
    Flush();
  }

 private:
  // Collects neighbouring pages, which are one request.
  void Request(PageNo page) {
    if (page.value >= page_count_) return;  // the cursor will report it
    if (page.value != run_begin_ + run_pages_) Flush();
    if (run_pages_ == 0) run_begin_ = page.value;
    ++run_pages_;
  }

  void Flush() {
    if (run_pages_ > 0) source_.Expect({run_begin_ * page_bytes_, run_pages_ * page_bytes_});
    run_pages_ = 0;
  }

  const file::MapSource& source_;
  uint64_t page_bytes_;
  uint64_t page_count_;
  std::optional<PageNo> leaf_;  // under the cursor
  uint64_t walked_ = 0;         // leaf pages since the last jump
  uint64_t ahead_ = 0;          // leaf pages behind the cursor that were requested
  uint64_t run_begin_ = 0;      // of the pages to request
  uint64_t run_pages_ = 0;
};

class CursorLocator final : public Locator {
 public:
  CursorLocator(std::unique_ptr<file::MapSource> source, const file::Database& database,
                CursorFetch fetch, std::unique_ptr<CursorHandoff> handoff)
      : source_(std::move(source)),
        database_(database),
        cursor_(database_),
        handoff_(std::move(handoff)) {
    if (fetch == CursorFetch::kValues) fetch_.emplace(*source_, database_);
    if (fetch == CursorFetch::kLeaves) read_ahead_.emplace(*source_, database_);
  }

  Result<uint64_t> RecordCount() override { return CountRecords(database_); }

  void Expect(RecordIndex first, uint64_t count) override {
    if (!fetch_) return;
    if (!has_begun_) LearnFirst();
    has_begun_ = true;
    fetch_->Expect(first, count);
  }

  bool IsReady() override { return !handoff_ || handoff_->IsHere(); }

  // With several hosts the cursor arrives from the host before this one, and stands on the last
  // record that any host has walked over.
  Result<bool> BeginGroup(const BatchGroup& /*group*/) override {
    if (fetch_) fetch_->Peek();
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
    LMDBIO_TRY_VOID(source_->CheckNotShrunk(database_.pages().snapshot().file_size_bytes));
    Status located = Walk(first, count, sink);
    // Of pages that were lost under the cursor, nothing that it found is true.
    LMDBIO_TRY_VOID(source_->CheckWhole());
    return located;
  }

  // A host that has no record in the group passes the cursor on as it has arrived.
  Status EndGroup() override {
    if (fetch_) fetch_->EndGroup();
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
    LocatorCounters counters;
    counters.turn_s = turn_s_.load(std::memory_order_relaxed);
    if (!fetch_) return counters;
    counters.missed_pages = fetch_->missed_pages();
    counters.redundant_pages = fetch_->redundant_pages();
    counters.fetch_s = fetch_->fetch_s();
    return counters;
  }

 private:
  Status Walk(RecordIndex first, uint64_t count, file::RecordRunSink& sink) {
    std::optional<LocationTally> tally;
    if (fetch_) {
      fetch_->Await();
      tally.emplace(fetch_->Observe());
    }
    LMDBIO_TRY_VOID(StandAt(first));
    RunJoiner runs(sink);
    for (uint64_t i = 0; i < count; ++i) {
      if (i > 0) LMDBIO_TRY_VOID(Step());
      LMDBIO_TRY(const file::RecordLocation location, cursor_.Place());
      LMDBIO_TRY_VOID(runs.Add({first.value + i}, location));
      if (tally) tally->Add({first.value + i}, location);
    }
    at_ = first.value + count - 1;
    is_at_start_ = false;
    if (tally) fetch_->Learn(*tally, {at_});
    return runs.Flush();
  }

  // Before the first batch, the first record is all that is known (dissertation 4.2.2). An error
  // here shows again when the record is located.
  void LearnFirst() {
    const Result<bool> found = cursor_.First();
    if (!found || !*found) return;
    const Result<file::RecordLocation> location = cursor_.Place();
    if (location) fetch_->LearnFirst(*location, cursor_.key().size());
  }

  Status Step() {
    LMDBIO_TRY(const bool found, cursor_.Next());
    return Arrive(found);
  }

  // The cursor has moved, or has found no record.
  Status Arrive(bool found) {
    if (found && read_ahead_) read_ahead_->Follow(cursor_);
    if (found) return {};
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
    if (read_ahead_) read_ahead_->Restart();
    if (record.value == 0) {
      LMDBIO_TRY(const bool found, cursor_.First());
      return Arrive(found);
    }
    LMDBIO_TRY(const bool found, cursor_.SeekOrdinal(record));
    return Arrive(found);
  }

  std::unique_ptr<file::MapSource> source_;
  file::Database database_;
  file::Cursor cursor_;
  std::unique_ptr<CursorHandoff> handoff_;   // null on the only host
  std::optional<SpeculativeFetch> fetch_;    // with CursorFetch::kValues
  std::optional<LeafReadAhead> read_ahead_;  // with CursorFetch::kLeaves
  uint64_t at_ = 0;                          // the record under the cursor
  bool is_at_start_ = true;                  // no host has walked yet, wherever this cursor stands
  bool has_begun_ = false;
  std::atomic<double> turn_s_{0};
};

}  // namespace

Result<std::unique_ptr<Locator>> OpenCursorLocator(const std::string& data_path,
                                                   const std::string& database_name,
                                                   CursorFetch fetch,
                                                   std::unique_ptr<CursorHandoff> handoff) {
  LMDBIO_TRY(auto source, file::MapSource::Open(data_path));
  LMDBIO_TRY(const file::Environment environment, file::Environment::Open(*source));
  file::Database database = environment.Main();
  if (!database_name.empty()) {
    LMDBIO_TRY(database, environment.Named(database_name));
  }
  return std::unique_ptr<Locator>(
      std::make_unique<CursorLocator>(std::move(source), database, fetch, std::move(handoff)));
}

}  // namespace lmdbio::load
