// lmdbio/load/locate/leaf_peek.h - the pages that a guess by distance misses.
//
// A guess by distance finds pages that follow each other. A writer puts some leaf pages and values
// elsewhere, into free pages of an earlier transaction. The branch pages name every leaf page, so
// the leaf pages of the next records are known except for a few at both ends. While a reader waits
// for its turn, it can look into them for values that lie elsewhere.
//
// The results are hints. A damaged page is skipped here; the cursor reports it.
//
// Source: dissertation 4.2.2 (speculation while another reader seeks), which knows no leaf pages;
// docs/many_hosts.md "Guessing".
#ifndef LMDBIO_LOAD_LOCATE_LEAF_PEEK_H_
#define LMDBIO_LOAD_LOCATE_LEAF_PEEK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "lmdbio/base/types.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/locate/page_guess.h"

namespace lmdbio::load {

// Threads: one at a time.
class LeafPeek {
 public:
  // database  its source must outlive this
  explicit LeafPeek(const file::Database& database) : database_(database) {}

  // The leaf pages that probably name records [first, first + count), in key order; none if the
  // branch pages cannot be read. The first call reads all branch pages.
  std::span<const PageNo> LeavesOf(RecordIndex first, uint64_t count);

  // The leaf page of a record was found.
  void Learn(RecordIndex record, PageNo leaf);

  // Adds the pages of overflow values that `leaves` name, except values that lie together with the
  // others of their leaf or in `known`. Reads the leaf pages.
  void AddStrays(std::span<const PageNo> leaves, PageSpan known,
                 std::vector<PageSpan>& pages) const;

 private:
  static PageSpan LineOf(std::span<const PageSpan> values);

  file::Database database_;
  bool is_listed_ = false;
  std::vector<PageNo> leaves_;
  double records_per_leaf_ = 1;
  // By index among the leaves.
  RecordAnchor first_;
  RecordAnchor last_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOCATE_LEAF_PEEK_H_
