#include "lmdbio/load/locate/leaf_peek.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lmdbio/file/format/leaf_page.h"
#include "lmdbio/file/layout/page_walk.h"

namespace lmdbio::load {
namespace {

// The leaf pages of one database hold similar numbers of records. The index of a leaf page is
// uncertain by this many leaf pages, and by this share of the distance.
constexpr double kLeavesOfDoubt = 2;
constexpr double kLeafShareOfDoubt = 1.0 / 32;

// The tree pages that may lie between consecutive values.
constexpr uint64_t kGapPages = 64;

}  // namespace

// Estimates the index of a leaf page from the nearest known record and the mean number of records
// in a leaf page, and adds the uncertainty at both ends.
std::span<const PageNo> LeafPeek::LeavesOf(RecordIndex first, uint64_t count) {
  // The list is read once. Without it there are no hints, and the cursor reports the damage.
  if (!std::exchange(is_listed_, true)) {
    file::PageClaims claims(database_.pages().snapshot().page_count());
    if (auto leaves = file::ListLeaves(database_, claims)) leaves_ = std::move(*leaves);
    records_per_leaf_ = static_cast<double>(database_.entry_count()) /
                        std::max(1.0, static_cast<double>(leaves_.size()));
  }
  if (leaves_.empty() || count == 0 || records_per_leaf_ <= 0) return {};
  const RecordAnchor& from = RecordAnchor::Nearest(first_, last_, first.value);
  const double to_begin =
      (static_cast<double>(first.value) - static_cast<double>(from.record)) / records_per_leaf_;
  const double to_end = to_begin + static_cast<double>(count) / records_per_leaf_;
  const auto index = [&](double leaf) {
    const double at = static_cast<double>(from.place) + leaf;
    return static_cast<size_t>(std::clamp(at, 0.0, static_cast<double>(leaves_.size())));
  };
  const auto doubt = [](double leaves) {
    return kLeavesOfDoubt + kLeafShareOfDoubt * std::abs(leaves);
  };
  const size_t begin = index(std::floor(to_begin - doubt(to_begin)));
  const size_t end = index(std::ceil(to_end + doubt(to_end)));
  return std::span(leaves_).subspan(begin, end - begin);
}

void LeafPeek::Learn(RecordIndex record, PageNo leaf) {
  // The leaf page is near its estimated index, so the search is short.
  const std::span<const PageNo> near = LeavesOf(record, 1);
  const auto found = std::find(near.begin(), near.end(), leaf);
  if (found == near.end()) return;
  // `first_` keeps its initial value: the first leaf page holds record 0.
  last_ = {record.value, static_cast<uint64_t>(&*found - leaves_.data())};
}

// The range in which most values of a leaf page lie: as many pages as all values have, on both
// sides of the median value.
PageSpan LeafPeek::LineOf(std::span<const PageSpan> values) {
  uint64_t page_count = kGapPages;
  std::vector<uint64_t> begins;
  for (const PageSpan& value : values) {
    page_count += value.page_count();
    begins.push_back(value.begin);
  }
  const auto middle = begins.begin() + static_cast<std::ptrdiff_t>(begins.size() / 2);
  std::nth_element(begins.begin(), middle, begins.end());
  return {*middle - std::min(*middle, page_count), *middle + page_count};
}

void LeafPeek::AddStrays(std::span<const PageNo> leaves, PageSpan known,
                         std::vector<PageSpan>& pages) const {
  const file::PageReader& reader = database_.pages();
  const uint64_t page_bytes = reader.page_format().page_size_bytes();
  std::vector<std::byte> scratch(page_bytes);
  std::vector<PageSpan> values;
  const auto touches = [](const PageSpan& a, const PageSpan& b) {
    return a.begin < b.end && b.begin < a.end;
  };
  for (const PageNo leaf : leaves) {
    // Errors are skipped: a wrong hint costs a read, and the cursor meets the same page later.
    const auto page = reader.ReadTreePage(leaf, scratch);
    if (!page || page->header.kind != file::PageKind::kLeaf) continue;
    const auto parsed = file::LeafPage::Parse(reader.page_format(), page->bytes, page->header);
    if (!parsed) continue;
    values.clear();
    for (uint32_t i = 0; i < parsed->entry_count(); ++i) {
      const file::LeafEntry entry = parsed->Entry(i);
      if (entry.flags != file::kOverflowNode) continue;
      const auto value = reader.OverflowExtent(leaf, *parsed, entry);
      if (!value) continue;
      values.push_back({value->offset / page_bytes,
                        (value->offset + value->length_bytes + page_bytes - 1) / page_bytes});
    }
    // If no value of a leaf page is in the guess, the leaf page belongs to other records.
    if (std::none_of(values.begin(), values.end(),
                     [&](const PageSpan& value) { return touches(value, known); })) {
      continue;
    }
    const PageSpan line = LineOf(values);
    for (const PageSpan& value : values) {
      if (!touches(value, known) && !touches(value, line)) pages.push_back(value);
    }
  }
}

}  // namespace lmdbio::load
