// lmdbio/layout/snapshot.h - one committed state of a data file, and whether it still holds.
//
// LMDB never overwrites pages of its two newest transactions, so what a snapshot names stays in
// place while the newest transaction is at most one ahead of it. Nobody registers anywhere: no lock
// file is read or written.
//
// Source: docs/format.md section 7.
#ifndef LMDBIO_LAYOUT_SNAPSHOT_H_
#define LMDBIO_LAYOUT_SNAPSHOT_H_

#include <cstdint>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"
#include "lmdbio/format/meta_page.h"

namespace lmdbio::layout {

struct Snapshot {
  format::PageFormat page_format;
  format::MetaPage meta;         // the newer of the two
  uint64_t file_size_bytes = 0;  // when the snapshot was taken

  // Whole pages in the file, and therefore more than any sound tree can have.
  uint64_t page_count() const { return file_size_bytes / page_format.page_size_bytes(); }
};

// Reads both meta pages until two readings agree, and takes the newer.
//
// Errors: kIo, kCorruption, kUnsupported; prefixed with the source's name
Result<Snapshot> TakeSnapshot(const ByteSource& source);

// Tells whether all pages of `snapshot` were still in place a moment ago: no more than one later
// transaction has begun to be visible. To be called after reading, for a file that may have a
// writer.
//
// Errors: kStale  the file has moved on too far, has shrunk, or is another file
Status CheckSnapshotHolds(const ByteSource& source, const Snapshot& snapshot);

}  // namespace lmdbio::layout
#endif  // LMDBIO_LAYOUT_SNAPSHOT_H_
