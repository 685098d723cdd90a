#include "lmdbio/load/baseline/snapshot_pin.h"

#include <lmdb.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/load/baseline/lmdb_call_error.h"

namespace lmdbio::load {
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

// The lock file must be the one that writers use: DIRECTORY/lock.mdb, or FILE-lock.
EnvironmentName NameOf(const std::string& data_path) {
  const std::filesystem::path path(data_path);
  if (path.filename() != "data.mdb") return {data_path, MDB_NOSUBDIR};
  const std::string directory = path.parent_path().string();
  return {directory.empty() ? "." : directory, 0};
}

class ReaderSlotPin final : public SnapshotPin {
 public:
  explicit ReaderSlotPin(std::string path) : path_(std::move(path)) {}
  ~ReaderSlotPin() override;

  Status Register();
  Status OpenEnvironment();
  Status Begin();

  uint64_t transaction_id() const override { return mdb_txn_id(transaction_); }
  Status Renew() override;

 private:
  std::string path_;
  std::pair<dev_t, ino_t> file_{};
  bool is_registered_ = false;
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
};

Status ReaderSlotPin::Register() {
  struct stat found = {};
  if (::stat(path_.c_str(), &found) != 0) {
    return Fail(ErrnoError(errno, path_, "cannot be opened"));
  }
  // By device and inode, because one file may have several names.
  file_ = {found.st_dev, found.st_ino};
  const std::lock_guard lock(Pinned().mutex);
  if (!Pinned().files.insert(file_).second) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: this process already has a pinned snapshot of the file; close its "
                            "loader or dataset first",
                            path_));
  }
  is_registered_ = true;
  return {};
}

Status ReaderSlotPin::OpenEnvironment() {
  int rc = mdb_env_create(&environment_);
  if (rc != 0) return Fail(LmdbCallError(rc, path_, "mdb_env_create"));
  // Counts only if no other process has the environment open. liblmdb's default, 126, is too low
  // for a host with many ranks.
  mdb_env_set_maxreaders(environment_, 1024);
  const EnvironmentName name = NameOf(path_);
  rc = mdb_env_open(environment_, name.path.c_str(), MDB_RDONLY | MDB_NOTLS | name.flags, 0644);
  if (rc != 0) return Fail(LmdbOpenError(rc, path_));
  return {};
}

// The file is free for another pin only after its environment is closed.
ReaderSlotPin::~ReaderSlotPin() {
  if (transaction_ != nullptr) mdb_txn_abort(transaction_);
  if (environment_ != nullptr) mdb_env_close(environment_);
  if (!is_registered_) return;
  const std::lock_guard lock(Pinned().mutex);
  Pinned().files.erase(file_);
}

Status ReaderSlotPin::Begin() {
  const int rc = mdb_txn_begin(environment_, nullptr, MDB_RDONLY, &transaction_);
  if (rc != 0) {
    transaction_ = nullptr;
    return Fail(LmdbCallError(rc, path_, "mdb_txn_begin"));
  }
  return {};
}

Status ReaderSlotPin::Renew() {
  mdb_txn_abort(transaction_);
  transaction_ = nullptr;
  return Begin();
}

}  // namespace

Result<std::unique_ptr<SnapshotPin>> SnapshotPin::Open(const std::string& data_path) {
  auto pin = std::make_unique<ReaderSlotPin>(data_path);
  LMDBIO_TRY_VOID(pin->Register());
  LMDBIO_TRY_VOID(pin->OpenEnvironment());
  LMDBIO_TRY_VOID(pin->Begin());
  return pin;
}

}  // namespace lmdbio::load
