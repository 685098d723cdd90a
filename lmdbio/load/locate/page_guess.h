// lmdbio/load/locate/page_guess.h - guesses the pages of the next records from those of the last
// ones.
//
// In a database that was loaded in key order, consecutive records take similar numbers of pages.
// The guess keeps the least and the greatest number of pages for a record. The next records lie
// between the pages that these two numbers predict. Their leaf pages may lie elsewhere
// (leaf_peek.h).
//
// The dissertation predicts pages for an iteration. This class predicts pages for a record, so that
// shares of any size can be guessed.
//
// Source: dissertation 4.2.2, Figure 4.5; docs/many_hosts.md "Guessing".
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

// A record whose place is known: its first page, or the index of its leaf page.
struct RecordAnchor {
  uint64_t record = 0;
  uint64_t place = 0;

  // The anchor nearer to `record`; `b` if both are equally near.
  static const RecordAnchor& Nearest(const RecordAnchor& a, const RecordAnchor& b, uint64_t record);
};

// Finds the longest contiguous range of the file that consecutive records fill in order. A writer
// puts some values into free pages of an earlier transaction; such strays do not end the range.
class ContiguousRangeFinder {
 public:
  // pages  of the record's value; of the leaf page, if the value is in there
  void Add(RecordIndex record, PageSpan pages);

  uint64_t record_count() const { return record_count_; }  // of all that were added
  // Of the longest range: its pages, and its records including strays.
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
  // file_pages  of the file; no later page is guessed
  explicit PageGuess(uint64_t file_pages) : file_pages_(file_pages) {}

  // Starts from the first record alone. It begins on `page`; all records are assumed as long as it.
  void Begin(uint64_t page, double pages_per_record);

  // Takes the pages of consecutive records. If most of them are strays, the database was not loaded
  // in order, and nothing is guessed until a later call finds ranges again.
  void Learn(const ContiguousRangeFinder& values);

  // The pages in which records [first, first + count) probably lie; empty without a guess.
  PageSpan Guess(RecordIndex first, uint64_t count) const;

 private:
  uint64_t file_pages_;
  std::optional<RecordAnchor> first_;  // the first record that was seen
  RecordAnchor last_;                  // behind the last record that was seen
  double pages_per_record_min_ = 0;
  double pages_per_record_max_ = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_PAGE_GUESS_H_
