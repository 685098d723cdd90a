// lmdbio/load/slots/snapshot_guard.h - whether the file is still the one that was opened.
//
//   immutable   nobody is expected to write; what changed is told at the end of an epoch, and at
//               once where damage shows
//   optimistic  a writer may be at work: after each slot, the two newest transactions tell whether
//               the pages were still in place
//   pinned      a read transaction of liblmdb's keeps writers from reusing the pages
//
// Source: docs/format.md section 7; docs/loader.md "Snapshots".
#ifndef LMDBIO_LOAD_SLOTS_SNAPSHOT_GUARD_H_
#define LMDBIO_LOAD_SLOTS_SNAPSHOT_GUARD_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/baseline/snapshot_pin.h"
#include "lmdbio/load/plan/options.h"

namespace lmdbio::load {

// Threads: one at a time.
class SnapshotGuard {
 public:
  // Opens the environment behind `source` in a way that suits `mode`.
  // source  of the data file itself; borrowed
  // Errors: as file::Environment::Open; with kPinned also kPermission, kResourceExhausted (no
  //         reader slot), kUnsupported (a file that liblmdb does not read)
  static Result<SnapshotGuard> Open(const ByteSource& source, SnapshotMode mode);

  const file::Environment& environment() const { return environment_; }

  // After the bytes of a slot have been read.
  // Errors: kStale, kIo, kCorruption
  Status AfterSlot() const;

  // After the last byte of an epoch has been read.
  // Errors: kStale  the file was changed, or another put in its place; kIo
  Status AfterEpoch() const;

  // `error`, or kStale if the file has changed, which explains it better.
  Error Explain(Error error) const;

 private:
  struct Identity {
    dev_t device = 0;
    ino_t inode = 0;
    uint64_t size_bytes = 0;
    timespec modified = {};
  };

  SnapshotGuard(const file::Environment& environment, SnapshotMode mode)
      : environment_(environment), mode_(mode) {}
  static Result<Identity> Identify(const std::string& path);
  Status CheckUnchanged() const;

  file::Environment environment_;
  SnapshotMode mode_;
  Identity identity_;
  std::unique_ptr<SnapshotPin> pin_;  // only with kPinned
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_SLOTS_SNAPSHOT_GUARD_H_
