// lmdbio/load/locate/speculative_fetch.h - fetches pages before the cursor needs them.
//
// For each group of batches:
//
//   Expect     guesses the pages by distance (page_guess.h) and requests them from the kernel, and
//              with them the leaf pages that the branch pages name (leaf_peek.h)
//   Peek       looks into these leaf pages, and requests values that lie elsewhere
//   Await      sleeps until the guessed pages are there
//   Learn      takes the locations that the cursor has found, for the next guess
//   EndGroup   counts the pages that the guess has missed, and those that were not needed
//
// A wrong guess costs a read. It never changes a location, because the cursor reads the pages
// itself. So no function here fails.
//
// Source: dissertation 4.2.2; docs/many_hosts.md "Guessing".
#ifndef LMDBIO_LOAD_LOCATE_SPECULATIVE_FETCH_H_
#define LMDBIO_LOAD_LOCATE_SPECULATIVE_FETCH_H_

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/record_run.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/load/locate/leaf_peek.h"
#include "lmdbio/load/locate/page_guess.h"

namespace lmdbio::load {

// The pages that were fetched for one group, and how many of them were needed.
class FetchedPages {
 public:
  // Starts a group with the guess by distance.
  void Begin(PageSpan guessed);
  // Adds pages outside of the guess. Sort must be called before Count.
  void AddOthers(PageSpan pages);
  void Sort();

  // The cursor needs these pages.
  void Count(PageSpan pages);

  bool Covers(PageSpan pages) const {
    return pages.begin >= guessed_.begin && pages.end <= guessed_.end;
  }
  PageSpan guessed() const { return guessed_; }
  uint64_t missed() const { return missed_; }  // needed and not fetched
  uint64_t redundant() const;                  // fetched and not needed

 private:
  PageSpan guessed_;
  std::vector<uint64_t> others_;  // outside of guessed_; ascending after Sort
  uint64_t used_ = 0;
  uint64_t missed_ = 0;
};

// Observes the locations of consecutive records.
class LocationTally {
 public:
  // pages  borrowed
  LocationTally(uint64_t page_bytes, FetchedPages& pages)
      : page_bytes_(page_bytes), pages_(pages) {}

  void Add(RecordIndex record, const file::RecordLocation& location);

  const ContiguousRangeFinder& values() const { return values_; }
  PageNo last_leaf() const { return last_leaf_; }

 private:
  uint64_t page_bytes_;
  FetchedPages& pages_;
  PageNo last_leaf_;
  ContiguousRangeFinder values_;
};

// Threads: one at a time; the counters from any thread.
class SpeculativeFetch {
 public:
  // source    the map of the file; borrowed
  // database  its source must outlive this
  SpeculativeFetch(const file::MapSource& source, const file::Database& database);

  // The first guess, from the first record alone: all records are as long as it is.
  // key_bytes  of the record
  void LearnFirst(const file::RecordLocation& location, uint64_t key_bytes);

  void Expect(RecordIndex first, uint64_t count);
  void Peek();
  void Await();
  LocationTally Observe() { return {page_bytes_, fetched_}; }
  // last  the last record that `tally` observed
  void Learn(const LocationTally& tally, RecordIndex last);
  void EndGroup();

  // Of all groups that have ended.
  uint64_t missed_pages() const { return missed_pages_.load(std::memory_order_relaxed); }
  uint64_t redundant_pages() const { return redundant_pages_.load(std::memory_order_relaxed); }
  double fetch_s() const { return fetch_s_.load(std::memory_order_relaxed); }

 private:
  void ExpectOther(PageSpan pages);

  const file::MapSource& source_;
  file::Database database_;
  uint64_t page_bytes_;
  PageGuess guess_;
  LeafPeek peek_;
  FetchedPages fetched_;            // of the group at hand
  Extent expected_;                 // the guess by distance, in bytes
  std::span<const PageNo> leaves_;  // that probably name the records of the group
  std::atomic<uint64_t> missed_pages_{0};
  std::atomic<uint64_t> redundant_pages_{0};
  std::atomic<double> fetch_s_{0};
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_SPECULATIVE_FETCH_H_
