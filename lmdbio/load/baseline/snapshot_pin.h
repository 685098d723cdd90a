// lmdbio/load/baseline/snapshot_pin.h - a read transaction of liblmdb that keeps a snapshot in
// place.
//
// The transaction has an entry in the lock file, so no writer reuses a page of the snapshot, and
// the file grows instead. Nothing is read through the transaction.
//
// The class is an interface for the same reason as LmdbStream.
//
// Source: docs/format.md section 7.
#ifndef LMDBIO_LOAD_BASELINE_SNAPSHOT_PIN_H_
#define LMDBIO_LOAD_BASELINE_SNAPSHOT_PIN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio::load {

// Threads: one at a time.
class SnapshotPin {
 public:
  // data_path  of the data file itself
  // Errors: kPermission  the lock file cannot be written
  //         kInvalidArgument  this process has pinned the file already: closing one of two
  //                           environments would silently unprotect the other (POSIX file locks)
  //         kUnsupported  a library that was built without liblmdb; what liblmdb does not read
  //         kNotFound, kResourceExhausted, kInternal: liblmdb's words
  static Result<std::unique_ptr<SnapshotPin>> Open(const std::string& data_path);
  SnapshotPin() = default;
  virtual ~SnapshotPin() = default;
  SnapshotPin(const SnapshotPin&) = delete;
  SnapshotPin& operator=(const SnapshotPin&) = delete;

  virtual uint64_t transaction_id() const = 0;

  // Releases the snapshot and pins the newest one.
  // Errors: as Open
  virtual Status Renew() = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_BASELINE_SNAPSHOT_PIN_H_
