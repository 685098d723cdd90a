#include "lmdbio/load/locate/page_guess.h"

#include <algorithm>
#include <cmath>

namespace lmdbio::load {
namespace {

// The tree pages that may lie between two values of a range: a few at the end of a transaction.
constexpr uint64_t kGapPagesMax = 64;
// This many strays in a row begin a new range.
constexpr uint64_t kStraysMax = 8;

// A tree page may lie between any two records, so equally many records may take one or two pages
// more.
constexpr double kPagesOfDoubt = 2;
// Tree pages may exceed the observed numbers, by this share of the distance in pages or in records,
// whichever is less: small records share the pages, and large ones need no more tree pages.
constexpr double kShareOfDoubt = 1.0 / 64;

}  // namespace

void PageGuess::Begin(uint64_t page, double pages_per_record) {
  first_ = RecordAnchor{0, page};
  last_ = *first_;
  pages_per_record_min_ = pages_per_record_max_ = pages_per_record;
}

void ContiguousRangeFinder::Add(RecordIndex record, PageSpan pages) {
  ++record_count_;
  // Values in leaf pages share them.
  const bool follows = current_.record_count > 0 && pages.begin + 1 >= current_.pages.end &&
                       pages.begin <= current_.pages.end + kGapPagesMax;
  if (follows) {
    current_.pages.end = pages.end;
    current_.record_count = record.value + 1 - current_.first_record;
    strays_ = 0;
  } else if (current_.record_count == 0 || ++strays_ >= kStraysMax) {
    current_ = {record.value, 1, pages};
    strays_ = 0;
  }
  if (current_.record_count > longest_.record_count) longest_ = current_;
}

void PageGuess::Learn(const ContiguousRangeFinder& values) {
  const uint64_t count = values.stretch_record_count();
  if (count == 0) return;
  // Most values are strays, so distance predicts nothing.
  if (count * 2 < values.record_count()) return first_.reset();
  const PageSpan pages = values.pages();
  const double per_record = static_cast<double>(pages.page_count()) / static_cast<double>(count);
  if (!first_) {
    Begin(pages.begin, per_record);
    first_->record = values.first_record().value;
  }
  pages_per_record_min_ = std::min(pages_per_record_min_, per_record);
  pages_per_record_max_ = std::max(pages_per_record_max_, per_record);
  last_ = {values.first_record().value + count, pages.end};
}

const RecordAnchor& RecordAnchor::Nearest(const RecordAnchor& a, const RecordAnchor& b,
                                          uint64_t record) {
  const auto distance = [record](const RecordAnchor& anchor) {
    return record > anchor.record ? record - anchor.record : anchor.record - record;
  };
  return distance(a) < distance(b) ? a : b;
}

// Begins at the nearer of two known records: the first one, or the end of the last ones. From there
// the least number of pages for a record gives the earliest first page, and the greatest number the
// latest last page. Records before the known one are reached backwards, so the numbers swap.
PageSpan PageGuess::Guess(RecordIndex first, uint64_t count) const {
  if (!first_ || count == 0) return {};
  const RecordAnchor& from = RecordAnchor::Nearest(*first_, last_, first.value);
  const double page_count = static_cast<double>(file_pages_);
  // Records of different sizes: the next ones may exceed all before them.
  const double spread_pages =
      (pages_per_record_max_ - pages_per_record_min_) * static_cast<double>(count);
  const auto doubt = [spread_pages](double records, double pages) {
    return kPagesOfDoubt + spread_pages +
           kShareOfDoubt * std::min(std::abs(records), std::abs(pages));
  };
  const double begin = static_cast<double>(first.value) - static_cast<double>(from.record);
  const double end = begin + static_cast<double>(count);
  const double low = begin * (begin >= 0 ? pages_per_record_min_ : pages_per_record_max_);
  const double high = end * (end >= 0 ? pages_per_record_max_ : pages_per_record_min_);
  const auto page = [&](double pages) {
    return static_cast<uint64_t>(
        std::clamp(static_cast<double>(from.place) + pages, 0.0, page_count));
  };
  return {page(std::floor(low - doubt(begin, low))), page(std::ceil(high + doubt(end, high)))};
}

}  // namespace lmdbio::load
