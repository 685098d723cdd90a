#include "lmdbio/load/locate/speculative_fetch.h"

#include <algorithm>
#include <chrono>

#include "lmdbio/load/locate/clocks.h"

namespace lmdbio::load {
namespace {

// The largest guess that the kernel is asked for.
constexpr uint64_t kExpectBytesMax = 256 << 20;

}  // namespace

void FetchedPages::Begin(PageSpan guessed) {
  guessed_ = guessed;
  others_.clear();
  used_ = 0;
  missed_ = 0;
}

void FetchedPages::AddOthers(PageSpan pages) {
  for (uint64_t page = pages.begin; page < pages.end; ++page) {
    if (page < guessed_.begin || page >= guessed_.end) others_.push_back(page);
  }
}

void FetchedPages::Sort() {
  std::sort(others_.begin(), others_.end());
  others_.erase(std::unique(others_.begin(), others_.end()), others_.end());
}

// The guess is one range and needs no list; only pages outside of it are searched in `others_`.
void FetchedPages::Count(PageSpan pages) {
  const uint64_t begin = std::max(pages.begin, guessed_.begin);
  const uint64_t end = std::min(pages.end, guessed_.end);
  uint64_t used = end > begin ? end - begin : 0;
  if (used < pages.page_count() && !others_.empty()) {
    const auto first = std::lower_bound(others_.begin(), others_.end(), pages.begin);
    used += static_cast<uint64_t>(std::lower_bound(first, others_.end(), pages.end) - first);
  }
  used_ += used;
  missed_ += pages.page_count() - used;
}

// Pages that several records share are counted several times, so `used_` may be the larger number.
uint64_t FetchedPages::redundant() const {
  const uint64_t fetched = guessed_.page_count() + others_.size();
  return fetched - std::min(fetched, used_);
}

void LocationTally::Add(RecordIndex record, const file::RecordLocation& location) {
  // The records of a leaf page come together, so the page counts once.
  if (location.leaf != last_leaf_) pages_.Count({location.leaf.value, location.leaf.value + 1});
  last_leaf_ = location.leaf;
  const uint64_t end = location.value.offset + location.value.length_bytes;
  const PageSpan value{location.value.offset / page_bytes_, (end + page_bytes_ - 1) / page_bytes_};
  values_.Add(record, value);
  if (value.begin == location.leaf.value) return;  // the value is on the leaf page
  pages_.Count(value);
}

SpeculativeFetch::SpeculativeFetch(const file::MapSource& source, const file::Database& database)
    : source_(source),
      database_(database),
      page_bytes_(database_.pages().page_format().page_size_bytes()),
      guess_(database_.pages().snapshot().page_count()),
      peek_(database_) {}

void SpeculativeFetch::LearnFirst(const file::RecordLocation& location, uint64_t key_bytes) {
  const uint64_t page = location.value.offset / page_bytes_;
  const bool has_run = page != location.leaf.value;
  const uint64_t header_bytes = database_.pages().page_format().header_bytes();
  const uint64_t bytes = location.value.length_bytes + (has_run ? header_bytes : key_bytes);
  // An overflow run takes whole pages. Small values share a leaf page.
  const uint64_t run_pages = (bytes + page_bytes_ - 1) / page_bytes_;
  guess_.Begin(page, has_run ? static_cast<double>(run_pages)
                             : static_cast<double>(bytes) / static_cast<double>(page_bytes_));
}

// The kernel may let the caller sleep until it can take more requests, so the time counts.
void SpeculativeFetch::Expect(RecordIndex first, uint64_t count) {
  // A bad guess may span the file. The limit keeps it from filling the page cache.
  PageSpan guessed = guess_.Guess(first, count);
  expected_ = {guessed.begin * page_bytes_,
               std::min(guessed.page_count() * page_bytes_, kExpectBytesMax)};
  guessed.end = guessed.begin + expected_.length_bytes / page_bytes_;
  fetched_.Begin(guessed);
  const auto start = std::chrono::steady_clock::now();
  source_.Expect(expected_);
  leaves_ = guessed.page_count() > 0 ? peek_.LeavesOf(first, count) : std::span<const PageNo>();
  for (const PageNo leaf : leaves_) ExpectOther({leaf.value, leaf.value + 1});
  Add(fetch_s_, SecondsSince(start));
}

void SpeculativeFetch::ExpectOther(PageSpan pages) {
  if (fetched_.Covers(pages)) return;
  source_.Expect({pages.begin * page_bytes_, pages.page_count() * page_bytes_});
  fetched_.AddOthers(pages);
}

// The walk needs these leaf pages in any case. At this moment no other host waits for this reader,
// so time spent here delays nobody. A file that has shrunk is not touched; the walk reports it.
void SpeculativeFetch::Peek() {
  if (leaves_.empty()) return;
  if (!source_.CheckNotShrunk(database_.pages().snapshot().file_size_bytes)) return;
  const auto start = std::chrono::steady_clock::now();
  std::vector<PageSpan> strays;
  peek_.AddStrays(leaves_, fetched_.guessed(), strays);
  for (const PageSpan& pages : strays) ExpectOther(pages);
  fetched_.Sort();
  Add(fetch_s_, SecondsSince(start));
}

void SpeculativeFetch::Await() {
  const auto start = std::chrono::steady_clock::now();
  source_.Await(expected_);
  Add(fetch_s_, SecondsSince(start));
}

void SpeculativeFetch::Learn(const LocationTally& tally, RecordIndex last) {
  if (!leaves_.empty()) peek_.Learn(last, tally.last_leaf());
  guess_.Learn(tally.values());
}

void SpeculativeFetch::EndGroup() {
  Add(missed_pages_, fetched_.missed());
  Add(redundant_pages_, fetched_.redundant());
  fetched_.Begin({});
  leaves_ = {};
}

}  // namespace lmdbio::load
