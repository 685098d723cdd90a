// lmdbio/load/slots/record_checker.h - whether fetched pages hold what a layout said they do.
//
// The bytes of a record were fetched from where a layout said it lies. Before anybody sees them,
// the pages themselves are asked: is this the leaf that was planned, does its node name this key
// and a value of this length at this place, does the overflow run begin here? So a layout that does
// not fit, a damaged page or a torn read is found for every record, not by sampling.
//
// Source: docs/loader.md "Checks"; docs/format.md section 8.
#ifndef LMDBIO_LOAD_SLOTS_RECORD_CHECKER_H_
#define LMDBIO_LOAD_SLOTS_RECORD_CHECKER_H_

#include <cstdint>

#include "lmdbio/base/status.h"
#include "lmdbio/file/format/leaf_page.h"
#include "lmdbio/file/layout/page_reader.h"
#include "lmdbio/load/plan/read_plan.h"

namespace lmdbio::load {

// Threads: const; any number of callers.
class RecordChecker {
 public:
  // pages  copied; its source must outlive this
  explicit RecordChecker(const file::PageReader& pages) : pages_(pages) {}

  const file::PageReader& pages() const { return pages_; }

  // The leaf page that holds the keys of `run`.
  // bytes  [page size] as fetched
  // Errors: kCorruption
  Result<file::LeafPage> OpenLeaf(const load::PlannedRun& run, Bytes bytes) const;

  // The page of a private tree that holds many duplicates of one key.
  // bytes  [page size] as fetched, of run.home
  // Errors: kCorruption
  Status CheckHome(const load::PlannedRun& run, Bytes bytes) const;

  // The node that holds the key of a run's record, if it speaks of this value.
  // into_run  which record of the run
  // Errors: kCorruption
  Result<file::LeafEntry> EntryOf(const load::PlannedRun& run, const file::LeafPage& leaf,
                                  uint64_t into_run, Extent value) const;

  // What stands before a value in overflow pages (has_run).
  // head  [header bytes of a page] as fetched
  // Errors: kCorruption
  Status CheckHead(Extent value, Bytes head) const;

 private:
  Status CheckEntry(const load::PlannedRun& run, const file::LeafPage& leaf,
                    const file::LeafEntry& entry, Extent value) const;

  file::PageReader pages_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_RECORD_CHECKER_H_
