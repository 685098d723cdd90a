// lmdbio/load/baseline/snapshot_pin.h - a read transaction of liblmdb's that keeps a snapshot in
// place.
//
// It takes a slot in the lock file, so that no writer reuses a page of the snapshot; the file grows
// meanwhile. Nothing is read through it.
//
// An interface, as lmdb_stream.h.
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

  // Lets go of the snapshot and takes the newest.
  // Errors: as Open
  virtual Status Renew() = 0;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_BASELINE_SNAPSHOT_PIN_H_
