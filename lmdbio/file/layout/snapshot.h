// lmdbio/file/layout/snapshot.h - one committed state of a data file, and the check that it still
// holds.
//
// LMDB never overwrites pages of its two newest transactions. So all pages of a snapshot stay in
// the file while the newest transaction is at most one ahead of it. The library does not register
// as a reader: it neither reads nor writes the lock file.
//
// Source: docs/format.md section 7.
#ifndef LMDBIO_FILE_LAYOUT_SNAPSHOT_H_
#define LMDBIO_FILE_LAYOUT_SNAPSHOT_H_

#include <cstdint>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/base/status.h"
#include "lmdbio/file/format/meta_page.h"

namespace lmdbio::file {

struct Snapshot {
  PageFormat page_format;
  MetaPage meta;                 // the newer of the two
  uint64_t file_size_bytes = 0;  // when the snapshot was taken

  // Whole pages in the file: an upper bound of the pages of any sound tree.
  uint64_t page_count() const { return page_format.PagesBefore(file_size_bytes); }
};

// Reads both meta pages until two readings agree, and takes the newer.
//
// Errors: kIo, kCorruption, kUnsupported; prefixed with the source's name
Result<Snapshot> TakeSnapshot(const ByteSource& source);

// Checks that all pages of `snapshot` were unchanged until now: at most one later transaction is
// visible. Call it after reading a file that may have a writer.
//
// Errors: kStale  two or more later transactions, a file that shrank, or another file
//         kIo, kCorruption
Status CheckSnapshotHolds(const ByteSource& source, const Snapshot& snapshot);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_LAYOUT_SNAPSHOT_H_
