#include "lmdbio/loader/snapshot_pin.h"

#include <lmdb.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include "lmdbio/io/errno_error.h"
#include "lmdbio/loader/lmdb_call_error.h"

namespace lmdbio::loader {
namespace {

// The one thing here that belongs to the process and not to an object, because file locks do.
struct PinnedFiles {
  std::mutex mutex;
  std::set<std::pair<dev_t, ino_t>> files;
};

PinnedFiles& Pinned() {
  static PinnedFiles pinned;
  return pinned;
}

// liblmdb finds the lock file by the way the environment is named: DIRECTORY, or FILE with
// MDB_NOSUBDIR.
struct EnvironmentName {
  std::string path;
  unsigned flags = 0;
};

EnvironmentName NameOf(const std::string& data_path) {
  const std::filesystem::path path(data_path);
  if (path.filename() != "data.mdb") return {data_path, MDB_NOSUBDIR};
  const std::string directory = path.parent_path().string();
  return {directory.empty() ? "." : directory, 0};
}

}  // namespace

Result<std::unique_ptr<SnapshotPin>> SnapshotPin::Open(const std::string& data_path) {
  struct stat found = {};
  if (::stat(data_path.c_str(), &found) != 0) {
    return Fail(io::ErrnoError(errno, data_path, "cannot be opened"));
  }
  std::unique_ptr<SnapshotPin> pin(new SnapshotPin(data_path));
  pin->file_ = {found.st_dev, found.st_ino};
  {
    const std::lock_guard lock(Pinned().mutex);
    if (!Pinned().files.insert(pin->file_).second) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: this process has pinned a snapshot of the file already", data_path));
    }
    pin->is_registered_ = true;
  }
  int rc = mdb_env_create(&pin->environment_);
  if (rc != 0) return Fail(LmdbCallError(rc, data_path, "mdb_env_create"));
  mdb_env_set_maxreaders(pin->environment_, 1024);
  const EnvironmentName name = NameOf(data_path);
  rc =
      mdb_env_open(pin->environment_, name.path.c_str(), MDB_RDONLY | MDB_NOTLS | name.flags, 0644);
  if (rc != 0) return Fail(LmdbOpenError(rc, data_path));
  LMDBIO_TRY_VOID(pin->Begin());
  return pin;
}

SnapshotPin::~SnapshotPin() {
  if (transaction_ != nullptr) mdb_txn_abort(transaction_);
  if (environment_ != nullptr) mdb_env_close(environment_);
  if (!is_registered_) return;
  const std::lock_guard lock(Pinned().mutex);
  Pinned().files.erase(file_);
}

Status SnapshotPin::Begin() {
  const int rc = mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &transaction_);
  if (rc != 0) {
    transaction_ = nullptr;
    return Fail(LmdbCallError(rc, path_, "mdb_txn_begin"));
  }
  return {};
}

uint64_t SnapshotPin::transaction_id() const { return mdb_txn_id(transaction_); }

Status SnapshotPin::Renew() {
  mdb_txn_abort(transaction_);
  transaction_ = nullptr;
  return Begin();
}

}  // namespace lmdbio::loader
