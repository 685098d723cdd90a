// The locator of LMM, LMM-DM and LMM-DIO: a cursor over a map, one record after the other.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/layout/cursor.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/load/locate/clocks.h"
#include "lmdbio/load/locate/leaf_peek.h"
#include "lmdbio/load/locate/locator.h"
#include "lmdbio/load/locate/page_guess.h"
#include "lmdbio/load/locate/run_joiner.h"

namespace lmdbio::load {
namespace {

// The kernel is not told of more than this in advance.
constexpr uint64_t kExpectBytesMax = 256 << 20;

// Counts the pages that records need, in and out of what was guessed.
class PageTally {
 public:
  // guessed  pages that were fetched already
  // others   the same; outside of these, ascending, none twice; borrowed
  PageTally(uint64_t page_bytes, PageSpan guessed, const std::vector<uint64_t>& others)
      : page_bytes_(page_bytes), guessed_(guessed), others_(others) {}

  void Add(RecordIndex record, const file::RecordLocation& place) {
    if (place.leaf != last_leaf_) Count({place.leaf.value, place.leaf.value + 1});
    last_leaf_ = place.leaf;
    const uint64_t end = place.value.offset + place.value.length_bytes;
    const PageSpan value{place.value.offset / page_bytes_, (end + page_bytes_ - 1) / page_bytes_};
    stretch_.Add(record, value);
    if (value.begin == place.leaf.value) return;
    leaf_nodes_ = std::max<uint64_t>(leaf_nodes_, place.node + 1);
    Count(value);
  }

  const ContiguousRangeFinder& values() const { return stretch_; }
  // The greatest number of nodes of a leaf whose values lie outside of it, as far as was seen.
  uint64_t leaf_nodes() const { return leaf_nodes_; }
  PageNo last_leaf() const { return last_leaf_; }
  uint64_t pages_inside() const { return inside_; }    // of what was guessed
  uint64_t pages_outside() const { return outside_; }  // needed all the same

 private:
  void Count(PageSpan pages) {
    const uint64_t begin = std::max(pages.begin, guessed_.begin);
    const uint64_t end = std::min(pages.end, guessed_.end);
    uint64_t inside = end > begin ? end - begin : 0;
    if (inside < pages.page_count() && !others_.empty()) {
      const auto first = std::lower_bound(others_.begin(), others_.end(), pages.begin);
      inside += static_cast<uint64_t>(std::lower_bound(first, others_.end(), pages.end) - first);
    }
    inside_ += inside;
    outside_ += pages.page_count() - inside;
  }

  uint64_t page_bytes_;
  PageSpan guessed_;
  const std::vector<uint64_t>& others_;
  PageNo last_leaf_;
  ContiguousRangeFinder stretch_;
  uint64_t leaf_nodes_ = 0;
  uint64_t inside_ = 0;
  uint64_t outside_ = 0;
};

class CursorLocator final : public Locator {
 public:
  CursorLocator(std::unique_ptr<file::MapSource> source, const file::Database& database,
                std::unique_ptr<load::CursorHandoff> baton)
      : source_(std::move(source)),
        database_(database),
        page_bytes_(database_.pages().page_format().page_size_bytes()),
        cursor_(database_),
        baton_(std::move(baton)),
        guess_(database_.pages().snapshot().page_count()),
        peek_(database_) {}

  Result<uint64_t> RecordCount() override { return CountRecords(database_); }

  void Expect(RecordIndex first, uint64_t count) override {
    if (!has_begun_) BeginGuess();
    has_begun_ = true;
    guessed_ = guess_.Guess(first, count);
    const uint64_t length_bytes = guessed_.page_count() * page_bytes_;
    expected_ = {guessed_.begin * page_bytes_, std::min(length_bytes, kExpectBytesMax)};
    guessed_.end = guessed_.begin + expected_.length_bytes / page_bytes_;
    // The kernel may let us sleep until it can take more requests.
    const auto start = std::chrono::steady_clock::now();
    source_->Expect(expected_);
    others_.clear();
    leaves_ = guessed_.page_count() > 0 ? peek_.LeavesOf(first, count) : std::span<const PageNo>();
    for (const PageNo leaf : leaves_) ExpectOther({leaf.value, leaf.value + 1});
    Add(fetch_s_, SecondsSince(start));
  }

  bool IsReady() override { return !baton_ || baton_->IsHere(); }

  Result<bool> BeginGroup(const load::BatchGroup& /*group*/) override {
    PeekAtLeaves();
    if (!baton_) return true;
    const auto start = std::chrono::steady_clock::now();
    LMDBIO_TRY(const auto cursor, baton_->Take());
    Add(turn_s_, SecondsSince(start));
    if (!cursor) return false;
    at_ = cursor->record;
    is_at_start_ = !cursor->is_standing;
    if (cursor->is_standing) LMDBIO_TRY_VOID(cursor_.SeekPosition(cursor->position));
    return true;
  }

  Status Locate(RecordIndex first, uint64_t count, file::RecordRunSink& sink) override {
    if (count == 0) return {};
    LMDBIO_TRY_VOID(source_->CheckNotShrunk(database_.pages().snapshot().file_size_bytes));
    const auto start = std::chrono::steady_clock::now();
    source_->Await(expected_);
    Add(fetch_s_, SecondsSince(start));
    LMDBIO_TRY_VOID(StandAt(first));
    RunJoiner runs(sink);
    PageTally pages(page_bytes_, guessed_, others_);
    for (uint64_t i = 0; i < count; ++i) {
      if (i > 0) LMDBIO_TRY_VOID(Step());
      LMDBIO_TRY(const file::RecordLocation place, cursor_.Place());
      LMDBIO_TRY_VOID(runs.Add({first.value + i}, place));
      pages.Add({first.value + i}, place);
    }
    at_ = first.value + count - 1;
    is_at_start_ = false;
    if (!leaves_.empty()) peek_.Learn({at_}, pages.last_leaf());
    leaf_nodes_ = std::max(leaf_nodes_, pages.leaf_nodes());
    guess_.Learn(pages.values(), leaf_nodes_);
    pages_inside_ += pages.pages_inside();
    pages_outside_ += pages.pages_outside();
    return runs.Flush();
  }

  Status EndGroup() override {
    const uint64_t guessed = guessed_.page_count() + others_.size();
    Add(missed_pages_, pages_outside_);
    Add(redundant_pages_, guessed - std::min(guessed, pages_inside_));
    pages_inside_ = pages_outside_ = 0;
    guessed_ = {};
    others_.clear();
    leaves_ = {};
    if (!baton_) return {};
    if (is_at_start_) return baton_->HandOn({});
    return baton_->HandOn({at_, true, cursor_.position()});
  }

  void Abandon(const Error& why) override {
    if (baton_) baton_->HandOnFailure(why);
  }

  void Stop() override {
    if (baton_) baton_->Stop();
  }

  LocatorCounters counters() const override {
    return {missed_pages_.load(std::memory_order_relaxed),
            redundant_pages_.load(std::memory_order_relaxed),
            fetch_s_.load(std::memory_order_relaxed), turn_s_.load(std::memory_order_relaxed)};
  }

 private:
  // Pages outside of what was guessed by distance.
  void ExpectOther(PageSpan pages) {
    if (pages.begin >= guessed_.begin && pages.end <= guessed_.end) return;
    source_->Expect({pages.begin * page_bytes_, pages.page_count() * page_bytes_});
    for (uint64_t page = pages.begin; page < pages.end; ++page) {
      if (page < guessed_.begin || page >= guessed_.end) others_.push_back(page);
    }
  }

  // The walk needs these leaf pages in any case; so early, they may still be on their way, and
  // nobody waits for this reader yet.
  void PeekAtLeaves() {
    if (leaves_.empty()) return;
    // The walk tells of it.
    if (!source_->CheckNotShrunk(database_.pages().snapshot().file_size_bytes)) return;
    const auto start = std::chrono::steady_clock::now();
    std::vector<PageSpan> strays;
    peek_.AddStrays(leaves_, guessed_, strays);
    for (const PageSpan& pages : strays) ExpectOther(pages);
    std::sort(others_.begin(), others_.end());
    others_.erase(std::unique(others_.begin(), others_.end()), others_.end());
    Add(fetch_s_, SecondsSince(start));
  }

  // All that is known before the first batch: the first record (dissertation 4.2.2). What is wrong
  // with it shows when it is asked for.
  void BeginGuess() {
    const Result<bool> found = cursor_.First();
    if (!found || !*found) return;
    const Result<file::RecordLocation> place = cursor_.Place();
    if (!place) return;
    const uint64_t page = place->value.offset / page_bytes_;
    const bool has_run = page != place->leaf.value;
    const uint64_t header_bytes = database_.pages().page_format().header_bytes();
    const uint64_t bytes =
        place->value.length_bytes + (has_run ? header_bytes : cursor_.key().size());
    const uint64_t run_pages = (bytes + page_bytes_ - 1) / page_bytes_;
    guess_.Begin(page, has_run ? static_cast<double>(run_pages)
                               : static_cast<double>(bytes) / static_cast<double>(page_bytes_));
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
  uint64_t page_bytes_;
  file::Cursor cursor_;
  std::unique_ptr<load::CursorHandoff> baton_;
  uint64_t at_ = 0;          // the record under the cursor
  bool is_at_start_ = true;  // nobody has walked yet, wherever this cursor stands
  bool has_begun_ = false;
  PageGuess guess_;
  LeafPeek peek_;
  uint64_t leaf_nodes_ = 0;  // see PageTally
  PageSpan guessed_;         // of the group at hand
  Extent expected_;          // the same, in bytes
  // Of the same group:
  std::span<const PageNo> leaves_;  // that probably name its records
  std::vector<uint64_t> others_;    // pages that were fetched besides guessed_
  uint64_t pages_inside_ = 0;
  uint64_t pages_outside_ = 0;
  std::atomic<uint64_t> missed_pages_{0};
  std::atomic<uint64_t> redundant_pages_{0};
  std::atomic<double> fetch_s_{0};
  std::atomic<double> turn_s_{0};
};

}  // namespace

Result<std::unique_ptr<Locator>> OpenCursorLocator(const std::string& data_path,
                                                   const std::string& database_name,
                                                   std::unique_ptr<load::CursorHandoff> baton) {
  LMDBIO_TRY(auto source, file::MapSource::Open(data_path));
  LMDBIO_TRY(const file::Environment environment, file::Environment::Open(*source));
  if (database_name.empty()) {
    const file::Database main = environment.Main();
    return std::unique_ptr<Locator>(
        std::make_unique<CursorLocator>(std::move(source), main, std::move(baton)));
  }
  LMDBIO_TRY(const file::Database named, environment.Named(database_name));
  return std::unique_ptr<Locator>(
      std::make_unique<CursorLocator>(std::move(source), named, std::move(baton)));
}

}  // namespace lmdbio::load
