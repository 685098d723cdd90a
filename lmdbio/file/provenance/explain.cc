#include "lmdbio/file/provenance/explain.h"

#include <algorithm>
#include <array>
#include <vector>

namespace lmdbio::file {
namespace {

// A replay that stops early is cheap, but the number of them must be bounded for a file that no
// ordered load wrote.
constexpr int kAttemptsMax = 1024;

// Compares replayed runs with a layout and stops at the first difference.
class MatchingSink final : public RecordRunSink {
 public:
  explicit MatchingSink(const Layout& layout) : layout_(layout) {}

  Status Add(const RecordRun& run) override {
    // Values are compared first, one by one, because the search needs the exact record at which the
    // replay leaves the file. A leaf page that differs alone is reported at the first record of its
    // run.
    if (next_run_ == layout_.run_count()) return Differs(run.first_record.value);
    const RunLocation place = layout_.Run(next_run_++);
    for (uint64_t i = 0; i < run.values.size(); ++i) {
      const uint64_t record = run.first_record.value + i;
      if (record >= layout_.record_count() || run.values[i] != layout_.Value({record})) {
        return Differs(record);
      }
    }
    if (place.first_record != run.first_record || place.record_count != run.values.size() ||
        place.leaf != run.leaf || place.kind != run.kind || place.first_node != run.first_node) {
      return Differs(run.first_record.value);
    }
    return {};
  }

  uint64_t matched_records() const { return matched_records_; }
  bool complete() const { return next_run_ == layout_.run_count(); }

 private:
  Status Differs(uint64_t record) {
    matched_records_ = record;
    // The error only stops the replay; Try turns it into "no match".
    return Fail(ErrorCode::kStale, "the layouts differ");
  }

  const Layout& layout_;
  uint64_t next_run_ = 0;
  uint64_t matched_records_ = 0;
};

class Search {
 public:
  Search(const Database& database, const Layout& layout, const OrderedLoad& load)
      : database_(database), layout_(layout), load_(load) {}

  // Replays with this interval. After a mismatch, matched_ is the first record that differs.
  std::optional<ExplainedLoad> Try(uint64_t interval, PutMode put_mode) {
    ++attempts_;
    load_.commit_interval_records = interval;
    load_.put_mode = put_mode;
    MatchingSink sink(layout_);
    const Result<ReplayTotals> totals = Replay(database_.pages().page_format(), load_, sink);
    matched_ = sink.matched_records();
    if (!totals || !sink.complete() || !MatchesMeta(*totals)) return std::nullopt;
    return ExplainedLoad{load_, *totals};
  }

  // Finds the interval from one replay with the largest one, instead of trying all of them. A
  // replay that commits too rarely agrees with the file up to the first commit that it misses,
  // because that commit moves the records behind it. So the first difference is near the end of an
  // interval. It may come earlier by up to one leaf of records, because the commit also moves the
  // leaf of an inline record.
  std::optional<ExplainedLoad> SearchInterval(uint64_t low, uint64_t high, PutMode put_mode) {
    std::optional<ExplainedLoad> found = Try(high, put_mode);
    if (found) return found;
    const uint64_t difference = matched_;
    const uint64_t leaf = LeafRecordsMax();
    // If fewer than 64 candidates exist, all are tried, because an attempt ends at its first
    // difference.
    const bool are_few = high - low < 64;
    const uint64_t span = are_few ? std::max(leaf, high - low) : leaf;
    if (difference >= low && difference <= high) {
      return TryEach(difference, std::min(high - 1, difference + span), put_mode);
    }
    // Behind `high`, the replay may have missed the commit of number k only: those before it came
    // into the same leaf in both. Then k intervals end near the difference.
    if (difference > high && !are_few) {
      for (uint64_t k = 2; k * low <= difference + leaf && !found; ++k) {
        found = TryEach(std::max(low, difference / k), std::min(high - 1, (difference + leaf) / k),
                        put_mode);
      }
    }
    if (found) return found;
    // Or several commits came into one leaf, and only the last of them is visible.
    return TryEach(low, std::min(high - 1, low + span), put_mode);
  }

 private:
  // The intervals from `first` to `last`.
  std::optional<ExplainedLoad> TryEach(uint64_t first, uint64_t last, PutMode put_mode) {
    for (uint64_t interval = first; interval <= last && attempts_ <= kAttemptsMax; ++interval) {
      std::optional<ExplainedLoad> found = Try(interval, put_mode);
      if (found) return found;
    }
    return std::nullopt;
  }

  // The runs show leaf pages and values only. The counters of the meta page cover the branch pages
  // and the end of the file too.
  bool MatchesMeta(const ReplayTotals& totals) const {
    const DatabaseRecord& record = database_.record();
    const MetaPage& meta = database_.pages().snapshot().meta;
    return totals.root == record.root && totals.last_page == meta.last_page &&
           totals.depth == record.depth && totals.branch_pages == record.branch_pages &&
           totals.leaf_pages == record.leaf_pages && totals.overflow_pages == record.overflow_pages;
  }

  // Looks at the first 1,024 runs: the number only bounds a search, and an estimate is enough.
  uint64_t LeafRecordsMax() const {
    uint64_t most = 1;
    for (uint64_t run = 0; run < std::min<uint64_t>(layout_.run_count(), 1024); ++run) {
      most = std::max(most, layout_.Run(run).record_count);
    }
    return most;
  }

  const Database& database_;
  const Layout& layout_;
  OrderedLoad load_;
  uint64_t matched_ = 0;
  int attempts_ = 0;
};

SizeColumn ColumnOf(std::span<const uint32_t> sizes) {
  const bool constant =
      std::ranges::all_of(sizes, [&](uint32_t size) { return size == sizes.front(); });
  return constant ? SizeColumn::Constant(sizes.front()) : SizeColumn::Each(sizes);
}

}  // namespace

std::optional<ExplainedLoad> ExplainLayout(const Database& database, const Layout& layout,
                                           std::span<const uint32_t> key_bytes,
                                           std::span<const uint32_t> value_bytes,
                                           const LoadHint& hint) {
  const uint64_t records = layout.record_count();
  const uint64_t transactions = database.pages().snapshot().meta.transaction_id;
  if (records == 0 || transactions == 0 || !database.name().empty() ||
      database.record().has_duplicates()) {
    return std::nullopt;
  }
  OrderedLoad load;
  load.record_count = records;
  load.key_bytes = ColumnOf(key_bytes);
  load.value_bytes = ColumnOf(value_bytes);
  Search search(database, layout, load);

  // T commits of n records each, with possibly fewer in the last: (T - 1) * n < records <= T * n.
  const uint64_t low = (records + transactions - 1) / transactions;
  const uint64_t high = transactions == 1 ? records : (records - 1) / (transactions - 1);
  // No interval exists if the counts contradict each other (low > high), as after a load that was
  // not uniform. Then only the hint is tried.
  const PutMode likely = hint.put_mode.value_or(PutMode::kDefault);
  const PutMode other = likely == PutMode::kDefault ? PutMode::kAppend : PutMode::kDefault;
  for (const PutMode put_mode : {likely, other}) {
    if (hint.commit_interval_records) {
      const uint64_t interval = std::clamp<uint64_t>(*hint.commit_interval_records, 1, records);
      std::optional<ExplainedLoad> found = search.Try(interval, put_mode);
      if (found) return found;
    }
    if (low > high) continue;
    std::optional<ExplainedLoad> found = search.SearchInterval(low, high, put_mode);
    if (found) return found;
  }
  return std::nullopt;
}

}  // namespace lmdbio::file
