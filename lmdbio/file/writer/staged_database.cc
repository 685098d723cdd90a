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
#include "lmdbio/file/output/file_owner.h"
#include "lmdbio/file/output/output_place.h"

namespace lmdbio::file {
namespace {

constexpr const char* kWorkingSuffix = ".lmdbio-partial";
constexpr const char* kDataName = "data.mdb";
constexpr int kTriesMax = 10;

bool Exists(const std::string& path) {
  struct stat ignored;
  return ::lstat(path.c_str(), &ignored) ==
         0;  // a dangling link counts: it would be written through
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Whether the directory holds nothing but the data file, or nothing at all.
bool HoldsOnlyData(const std::string& directory) {
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().filename() != kDataName) return false;
  }
  return !failed;
}

// Removes the files of a load of this user that has ended.
// path  ends in kWorkingSuffix
FileState RemoveAbandonedLoad(const std::string& path) {
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? FileState::kGone : FileState::kUnknown;
  }
  if (S_ISREG(found.st_mode)) return RemoveAbandoned(AT_FDCWD, path);
  if (!S_ISDIR(found.st_mode) || found.st_uid != ::geteuid() || !HoldsOnlyData(path)) {
    return FileState::kUnknown;
  }
  // By its path and not in the opened directory, which may have got its final name meanwhile.
  const FileState data = RemoveAbandoned(AT_FDCWD, fmt::format("{}/{}", path, kDataName));
  if (data != FileState::kGone) return data;
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return FileState::kGone;
  // Another load has taken the empty directory for its own at this moment.
  return errno == ENOTEMPTY ? FileState::kOwned : FileState::kUnknown;
}

// Frees the room of loads into `directory` that were killed. They may be as large as this one.
void RemoveAbandonedLoads(const std::string& directory) {
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string path = entry->path().string();
    if (path.ends_with(kWorkingSuffix)) RemoveAbandonedLoad(path);
  }
}

// Makes an empty database whose data file is locked. Fails if the name exists, so of two loads to
// the same path only one continues. Returns errno, or 0; EAGAIN: another load has just removed the
// files, because it took them for abandoned before they were locked.
int MakeLocked(const std::string& path, DatabaseShape shape, UniqueFd& locked) {
  const bool is_directory = shape == DatabaseShape::kDirectory;
  if (is_directory && ::mkdir(path.c_str(), 0777) != 0) return errno;
  const std::string data = is_directory ? fmt::format("{}/{}", path, kDataName) : path;
  UniqueFd made(::open(data.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!made) {
    const int error_number = errno;
    if (is_directory) ::rmdir(path.c_str());
    return is_directory && error_number == ENOENT ? EAGAIN : error_number;
  }
  struct stat found;
  if (!LockAsOwner(made) || ::fstat(made.get(), &found) != 0 || found.st_nlink == 0) return EAGAIN;
  locked = std::move(made);
  return 0;
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
    : path_(std::move(path)), working_path_(path_ + kWorkingSuffix), shape_(shape) {}

StagedDatabase::StagedDatabase(StagedDatabase&& other) noexcept
    : path_(std::move(other.path_)),
      working_path_(std::move(other.working_path_)),
      shape_(other.shape_),
      owns_files_(std::exchange(other.owns_files_, false)),
      data_file_(std::move(other.data_file_)) {}

StagedDatabase::~StagedDatabase() {
  if (!owns_files_) return;
  std::error_code ignored;  // a destructor cannot report it
  std::filesystem::remove_all(working_path_, ignored);
}

Result<StagedDatabase> StagedDatabase::Create(std::string path, DatabaseShape shape) {
  // With a slash at its end, "PATH.lmdbio-partial" would lie inside the directory PATH.
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  if (path.empty()) return Fail(ErrorCode::kInvalidArgument, "the path of the database is empty");
  LMDBIO_TRY_VOID(CheckLinks(path));
  if (Exists(path)) return Fail(ExistsError(path));
  StagedDatabase staged(std::move(path), shape);
  RemoveAbandonedLoads(ParentOf(staged.path_));
  LMDBIO_TRY_VOID(staged.MakeFiles());
  return staged;
}

Status StagedDatabase::MakeFiles() {
  for (int i = 0; i < kTriesMax; ++i) {
    const int error_number = MakeLocked(working_path_, shape_, data_file_);
    owns_files_ = error_number == 0;
    if (owns_files_) return {};
    if (error_number == EAGAIN) continue;
    if (error_number != EEXIST) {
      return Fail(ErrnoError(error_number, working_path_, "cannot be created"));
    }
    const FileState state = RemoveAbandonedLoad(working_path_);
    if (state == FileState::kUnknown) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} exists, and may belong to another load; remove it to go on",
                              working_path_));
    }
    if (state == FileState::kOwned) break;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} exists: another load is running", working_path_));
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
  return SyncDirectory(ParentOf(path_));
}

std::string StagedDatabase::working_data_file() const {
  return shape_ == DatabaseShape::kDirectory ? fmt::format("{}/{}", working_path_, kDataName)
                                             : working_path_;
}

}  // namespace lmdbio::file
