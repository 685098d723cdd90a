// lmdbio/load/slots/in_place_view.h - records in this rank's map of the file.
//
// This is for a file that is mostly in the page cache. LMDB needs no copy of a record, so a copy
// would cost memory bandwidth that LMDB does not spend. The reader plans slots and checks leaf
// pages as usual. With several ranks, the one that gets a value checks the head of its overflow
// run, because it maps that page anyway. The reader would map the page, and fifteen pages around
// it, only for this check.
//
// Source: docs/loader.md "Strategies".
#ifndef LMDBIO_LOAD_SLOTS_IN_PLACE_VIEW_H_
#define LMDBIO_LOAD_SLOTS_IN_PLACE_VIEW_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/page_reader.h"
#include "lmdbio/file/source/map_source.h"
#include "lmdbio/load/plan/options.h"
#include "lmdbio/load/slots/window.h"

namespace lmdbio::load {

// Threads: one at a time; map() from any.
class InPlaceView {
 public:
  // Maps the data file at `data_path`.
  // snapshot  as rank 0 sees it
  // Errors: kNotFound, kPermission, kResourceExhausted (address space), kIo
  //         kStale  the file is smaller than the snapshot
  static Result<InPlaceView> Open(const std::string& data_path, const file::Snapshot& snapshot,
                                  OnError on_error);

  const file::MapSource& map() const { return *map_; }

  // Prepares a rank's share of a batch: checks the heads that are left to it, that the file is as
  // long as before, and that every byte of the batches before was the file's.
  // entries      as the reader wrote them, of this rank alone; samples with an entry that cannot be
  //              used are removed
  // field_count  entries of each sample
  // Returns: the number of entries that remain, at the front of `entries`
  // Errors: kStale       the file has shrunk
  //         kIo          the storage failed for a page that somebody has used
  //         kCorruption  with OnError::kRaise, the first value whose run is not what was planned
  Result<size_t> Ready(std::span<RecordEntry> entries, size_t field_count = 1) const;

 private:
  InPlaceView(std::unique_ptr<file::MapSource> map, const file::Snapshot& snapshot,
              OnError on_error)
      : map_(std::move(map)), pages_(*map_, snapshot), on_error_(on_error) {}

  Status CheckHead(const RecordEntry& entry) const;
  Result<size_t> CheckHeads(std::span<RecordEntry> entries, size_t field_count) const;

  std::unique_ptr<file::MapSource> map_;
  file::PageReader pages_;
  OnError on_error_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_IN_PLACE_VIEW_H_
