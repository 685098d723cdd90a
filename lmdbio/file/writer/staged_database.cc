#include "lmdbio/file/writer/staged_database.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {
namespace {

bool Exists(const std::string& path) {
  struct stat ignored;
  return ::lstat(path.c_str(), &ignored) ==
         0;  // a dangling link counts: it would be written through
}

// Fails if the name exists. So of two loads to the same path only one continues.
Status CreateEmpty(const std::string& path, DatabaseShape shape) {
  if (shape == DatabaseShape::kDirectory) {
    if (::mkdir(path.c_str(), 0777) == 0) return {};
  } else {
    const UniqueFd fd(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666));
    if (fd) return {};
  }
  if (errno == EEXIST) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} exists: another load is running or was killed; remove it to go on", path));
  }
  return Fail(ErrnoError(errno, path, "cannot be created"));
}

// Renames without replacing an existing file. On a file system without RENAME_NOREPLACE it checks
// first, so a file that appears between check and rename can be replaced.
int RenameNew(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (Exists(to)) return EEXIST;
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

Error ExistsError(const std::string& path) {
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} exists; remove it or give another path", path));
}

// Makes the entries of a directory durable. EINVAL is accepted, because some file systems cannot
// sync a directory.
Status SyncDirectory(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd && (::fsync(fd.get()) == 0 || errno == EINVAL)) return {};
  return Fail(ErrnoError(errno, path, "cannot be synced"));
}

}  // namespace

StagedDatabase::StagedDatabase(std::string path, DatabaseShape shape)
    : path_(std::move(path)), working_path_(path_ + ".partial"), shape_(shape) {}

StagedDatabase::StagedDatabase(StagedDatabase&& other) noexcept
    : path_(std::move(other.path_)),
      working_path_(std::move(other.working_path_)),
      shape_(other.shape_),
      owns_files_(std::exchange(other.owns_files_, false)) {}

StagedDatabase::~StagedDatabase() {
  if (!owns_files_) return;
  std::error_code ignored;  // a destructor cannot report it
  std::filesystem::remove_all(working_path_, ignored);
}

Result<StagedDatabase> StagedDatabase::Create(std::string path, DatabaseShape shape) {
  // With a slash at its end, "PATH.partial" would lie inside the directory PATH.
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty()) return Fail(ErrorCode::kInvalidArgument, "the path of the database is empty");
  if (Exists(path)) return Fail(ExistsError(path));
  StagedDatabase staged(std::move(path), shape);
  LMDBIO_TRY_VOID(CreateEmpty(staged.working_path_, shape));
  staged.owns_files_ = true;
  return staged;
}

Status StagedDatabase::Publish() {
  // Without this sync a crash could leave the final name with an empty directory.
  if (shape_ == DatabaseShape::kDirectory) LMDBIO_TRY_VOID(SyncDirectory(working_path_));
  const int error_number = RenameNew(working_path_, path_);
  if (error_number == EEXIST) return Fail(ExistsError(path_));
  if (error_number != 0)
    return Fail(
        ErrnoError(error_number, path_, "the finished database cannot be renamed to this path"));
  // The database has its name now. If the sync below fails, the files must stay.
  owns_files_ = false;
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

std::string StagedDatabase::working_data_file() const {
  return shape_ == DatabaseShape::kDirectory ? working_path_ + "/data.mdb" : working_path_;
}

}  // namespace lmdbio::file
