// lmdbio/load/locate/page_guess.h - where the next records probably lie, from where the last ones
// lay.
//
// A database that was loaded in key order grows through the file, a few more or fewer pages for as
// many records. What was seen gives the least and the greatest number of pages for a record; the
// next records lie between where the least and where the greatest would put them. The leaf page of
// the first of them may stand as far before it as a leaf's records reach.
//
// Source: dissertation 4.2.2, Figure 4.5, with its numbers of pages for each iteration taken by
// record, so that shares of any size can be guessed; docs/many_hosts.md "Guessing".
#ifndef LMDBIO_LOAD_LOCATE_PAGE_GUESS_H_
#define LMDBIO_LOAD_LOCATE_PAGE_GUESS_H_

#include <cstdint>
#include <optional>

#include "lmdbio/base/types.h"

namespace lmdbio::load {

// Pages [begin, end) of the file.
struct PageSpan {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint64_t page_count() const { return end > begin ? end - begin : 0; }
};

// A record whose place in some order is known: its first page, or the index of its leaf page.
struct RecordAnchor {
  uint64_t record = 0;
  uint64_t place = 0;

  // The nearer one of two to `record`; `b` of equals.
  static const RecordAnchor& Nearest(const RecordAnchor& a, const RecordAnchor& b, uint64_t record);
};

// Finds the longest stretch of the file that consecutive records fill one after the other. A writer
// puts a value now and then into pages that an earlier transaction has left; those are passed over.
class ContiguousRangeFinder {
 public:
  // pages  of the record's value; of the leaf page, if the value is in there
  void Add(RecordIndex record, PageSpan pages);

  uint64_t record_count() const { return record_count_; }  // of all that were added
  // Of the longest stretch; its pages, and the records that fill them or were passed over.
  PageSpan pages() const { return longest_.pages; }
  RecordIndex first_record() const { return {longest_.first_record}; }
  uint64_t stretch_record_count() const { return longest_.record_count; }

 private:
  struct PageRange {
    uint64_t first_record = 0;
    uint64_t record_count = 0;
    PageSpan pages;
  };
  uint64_t record_count_ = 0;
  uint64_t strays_ = 0;  // in a row
  PageRange current_;
  PageRange longest_;
};

class PageGuess {
 public:
  // file_pages  what lies behind them is never guessed
  explicit PageGuess(uint64_t file_pages) : file_pages_(file_pages) {}

  // From the first record alone: it begins on `page`, and all are as long as it is.
  void Begin(uint64_t page, double pages_per_record);

  // What the values of consecutive records were found to lie in. If most of them do not follow each
  // other, nothing is guessed any more: the database was not loaded in order.
  // leaf_nodes  the greatest number of nodes of one leaf page before a value that was seen so far;
  //             0 if values are in leaf pages themselves
  void Learn(const ContiguousRangeFinder& values, uint64_t leaf_nodes);

  // Where records [first, first + count) lie, as far as that is known; else nothing.
  PageSpan Guess(RecordIndex first, uint64_t count) const;

 private:
  uint64_t file_pages_;
  std::optional<RecordAnchor> first_;  // of all that was seen
  RecordAnchor last_;                  // behind what was seen last
  double pages_per_record_min_ = 0;
  double pages_per_record_max_ = 0;
  double lead_pages_ = 0;  // of a leaf page before its values
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_PAGE_GUESS_H_
