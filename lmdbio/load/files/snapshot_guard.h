// lmdbio/load/files/snapshot_guard.h - detects that the file was changed after it was opened.
//
//   immutable   no writer is expected. A change is detected at the end of an epoch, and after a
//               damaged page or a failed read
//   optimistic  a writer may be active. After each slot, the two newest transactions show whether
//               the pages of the slot were still in place
//   pinned      a read transaction of liblmdb keeps writers from reusing the pages
//
// Source: docs/format.md section 7; docs/loader.md "Snapshots".
#ifndef LMDBIO_LOAD_FILES_SNAPSHOT_GUARD_H_
#define LMDBIO_LOAD_FILES_SNAPSHOT_GUARD_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmdbio/base/byte_source.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/baseline/snapshot_pin.h"
#include "lmdbio/load/plan/options.h"

namespace lmdbio::load {

// Threads: const; any number of callers.
class SnapshotGuard {
 public:
  // Opens the environment of `source` with the protection of `mode`.
  // source  of the data file itself; borrowed
  // Errors: as file::Environment::Open; with kPinned also kPermission, kResourceExhausted (no
  //         reader slot), kUnsupported (a file that liblmdb does not read)
  static Result<SnapshotGuard> Open(const ByteSource& source, SnapshotMode mode);

  const file::Environment& environment() const { return environment_; }

  // After the bytes of a slot have been read.
  // Errors: kStale, kIo, kCorruption
  Status AfterSlot() const;

  // After the last byte of an epoch has been read.
  // Errors: kStale  the file was changed or replaced; kIo
  Status AfterEpoch() const;

  // Returns kStale if the file has changed, because that is the cause of `error`; else `error`.
  Error Explain(Error error) const;

  // False: AfterSlot, or AfterEpoch, does nothing.
  bool checks_slots() const { return mode_ == SnapshotMode::kOptimistic; }
  bool checks_epochs() const { return mode_ == SnapshotMode::kImmutable; }

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

// The guards of all files of a list: each file is checked.
// Threads: const; any number of callers.
class SnapshotGuards {
 public:
  void Add(SnapshotGuard guard) { guards_.push_back(std::move(guard)); }

  size_t file_count() const { return guards_.size(); }
  const SnapshotGuard& file(size_t i) const { return guards_[i]; }

  // As those of SnapshotGuard, for the first file that fails. Errors: as there
  Status AfterSlot() const;
  // Errors: as SnapshotGuard::AfterEpoch
  Status AfterEpoch() const;
  Error Explain(Error error) const;

 private:
  std::vector<SnapshotGuard> guards_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_FILES_SNAPSHOT_GUARD_H_
