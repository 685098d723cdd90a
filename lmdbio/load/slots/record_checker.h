// lmdbio/load/slots/record_checker.h - checks that fetched pages agree with the layout.
//
// A layout said where a record lies, and its pages were fetched from there. Before a rank sees the
// record, the pages themselves are checked: the leaf page is the planned one, its node refers to a
// value of this length at this offset, and the overflow run begins there. So a layout that does not
// fit, a damaged page and a torn read are found for every record, not by sampling.
//
// Source: docs/loader.md "Checks"; docs/format.md section 8.
#ifndef LMDBIO_LOAD_SLOTS_RECORD_CHECKER_H_
#define LMDBIO_LOAD_SLOTS_RECORD_CHECKER_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "lmdbio/base/status.h"
#include "lmdbio/file/format/leaf_page.h"
#include "lmdbio/file/layout/page_reader.h"
#include "lmdbio/load/plan/read_plan.h"

namespace lmdbio::load {

// Heads of overflow runs are prefetched this many records before they are checked. They lie pages
// apart, and the processor does not predict such addresses.
inline constexpr size_t kHeadsAhead = 8;

// Threads: const; any number of callers.
class RecordChecker {
 public:
  // pages  of one or several files; the sources must outlive this
  explicit RecordChecker(file::JoinedPages pages) : pages_(std::move(pages)) {}

  const file::JoinedPages& pages() const { return pages_; }

  // Checks the leaf page that holds the keys of `run`. If the values are duplicates on another
  // page, the home page of the run, checks that page too.
  // pages  the memory that the plan's buffer offsets count from, with the pages of the run
  // Returns: the leaf page, as a view into `pages`
  // Errors: kCorruption
  Result<file::LeafPage> OpenRun(const PlannedRun& run, Bytes pages) const;

  // Checks that the node of a run's record refers to this value.
  // into_run  index of the record in the run
  // Returns: the node
  // Errors: kCorruption
  Result<file::LeafEntry> EntryOf(const PlannedRun& run, const file::LeafPage& leaf,
                                  uint64_t into_run, Extent value) const;

  // Checks the head of the overflow run that holds `value`.
  // pages  the memory that the plan's buffer offsets count from
  // Errors: kCorruption
  Status CheckHead(const PlannedValue& value, Bytes pages) const;

 private:
  using File = file::JoinedPages::File;
  static Result<file::LeafPage> OpenLeaf(const File& file, const PlannedRun& run, Bytes bytes);
  static Status CheckHome(const File& file, const PlannedRun& run, Bytes bytes);
  static Status CheckEntry(const File& file, const PlannedRun& run, const file::LeafPage& leaf,
                           const file::LeafEntry& entry, Extent value);

  file::JoinedPages pages_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_RECORD_CHECKER_H_
