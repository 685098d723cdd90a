// lmdbio/load/slots/in_place_view.h - records looked at where they lie, in this rank's map of the
// file.
//
// For a file that is all in the page cache: memory bandwidth has no room for a copy that LMDB does
// without. The reader plans and checks leaf pages as ever; the head of a value's overflow run is
// looked at by the rank that gets the value, which maps that page anyway. A reader would map it,
// and fifteen around it, for nothing, or wait for memory once for each record.
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

  // Makes a rank's share of a batch ready to be used: its pages are mapped, their addresses known
  // to the processor.
  // entries  as the reader wrote them, of this rank alone; those that cannot be used are taken out
  // Returns: how many are left, at the front of `entries`
  // Errors: kStale       the file has shrunk
  //         kCorruption  with OnError::kRaise, the first value whose run is not what was planned
  Result<size_t> Ready(std::span<RecordEntry> entries) const;

 private:
  InPlaceView(std::unique_ptr<file::MapSource> map, const file::Snapshot& snapshot,
              OnError on_error)
      : map_(std::move(map)), pages_(*map_, snapshot), on_error_(on_error) {}

  Status CheckHead(const RecordEntry& entry) const;
  void Touch(const RecordEntry& entry) const;
  void Populate(std::span<const RecordEntry> entries) const;

  std::unique_ptr<file::MapSource> map_;
  file::PageReader pages_;
  OnError on_error_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_IN_PLACE_VIEW_H_
