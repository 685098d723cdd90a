// lmdbio/loader/snapshot_pin.h - a read transaction of liblmdb's that keeps a snapshot in place.
//
// It takes a slot in the lock file, so that no writer reuses a page of the snapshot; the file grows
// meanwhile. Nothing is read through it.
//
// Source: docs/format.md section 7.
#ifndef LMDBIO_LOADER_SNAPSHOT_PIN_H_
#define LMDBIO_LOADER_SNAPSHOT_PIN_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "lmdbio/base/status.h"

struct MDB_env;
struct MDB_txn;

namespace lmdbio::loader {

// Threads: one at a time.
class SnapshotPin {
 public:
  // data_path  of the data file itself
  // Errors: kPermission  the lock file cannot be written
  //         kInvalidArgument  this process has pinned the file already: closing one of two
  //                           environments would silently unprotect the other (POSIX file locks)
  //         kNotFound, kResourceExhausted, kUnsupported, kInternal: liblmdb's words
  static Result<std::unique_ptr<SnapshotPin>> Open(const std::string& data_path);
  ~SnapshotPin();
  SnapshotPin(const SnapshotPin&) = delete;
  SnapshotPin& operator=(const SnapshotPin&) = delete;

  uint64_t transaction_id() const;

  // Lets go of the snapshot and takes the newest.
  // Errors: as Open
  Status Renew();

 private:
  explicit SnapshotPin(std::string path) : path_(std::move(path)) {}
  Status Begin();

  std::string path_;
  std::pair<dev_t, ino_t> file_{};
  bool is_registered_ = false;
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
};

}  // namespace lmdbio::loader
#endif  // LMDBIO_LOADER_SNAPSHOT_PIN_H_
