#include "lmdbio/file/output/output_place.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"

namespace lmdbio::file {
namespace {

constexpr int kLinksMax = 40;        // the limit of the kernel
constexpr ino_t kProcRootInode = 1;  // of the folder /proc

Error NotWritable(int error_number, const std::string& path) {
  return ErrnoError(error_number, path, "cannot be written");
}

tl::unexpected<Error> Refuse(ErrorCode code, const std::string& path, std::string_view why) {
  return Fail(code, fmt::format("{}: cannot be written: {}", path, why));
}

bool IsOpenToAll(const struct stat& folder) { return (folder.st_mode & S_IWOTH) != 0; }

bool IsOwnOrRoots(const struct stat& file) {
  return file.st_uid == ::geteuid() || file.st_uid == 0;
}

bool IsSameFile(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

struct WalkEnd {
  UniqueFd folder;
  std::string name;
  struct stat file = {};  // all 0 if there is none
  bool is_open_file = false;
};

// Walks along a path from folder to folder, as the kernel does, and applies the rules to each link.
class LinkWalk {
 public:
  explicit LinkWalk(const std::string& path) : path_(path), rest_(path) {}

  Result<WalkEnd> Run() {
    if (path_.empty()) return Fail(NotWritable(ENOENT, path_));
    LMDBIO_TRY_VOID(Enter(path_.front() == '/' ? "/" : ".", 0));
    while (true) {
      const std::string name = TakeName();
      if (name.empty()) return Fail(NotWritable(EISDIR, path_));
      struct stat file = {};
      if (::fstatat(folder_.get(), name.c_str(), &file, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT || !rest_.empty()) return Fail(NotWritable(errno, path_));
        return WalkEnd{std::move(folder_), name};
      }
      const bool is_link = S_ISLNK(file.st_mode);
      const bool is_open_file = is_link && LeadsToOpenFile();
      if (rest_.empty() && (!is_link || is_open_file)) {
        return WalkEnd{std::move(folder_), name, file, is_open_file};
      }
      if (is_link && !is_open_file) {
        LMDBIO_TRY_VOID(Follow(name, file));
      } else {
        LMDBIO_TRY_VOID(Enter(name, is_open_file ? 0 : O_NOFOLLOW));
      }
    }
  }

 private:
  // The next name of the path; "" at its end.
  std::string TakeName() {
    rest_.erase(0, rest_.find_first_not_of('/'));
    std::string name = rest_.substr(0, rest_.find('/'));
    rest_.erase(0, name.size());
    return name;
  }

  Status Enter(const std::string& name, int flags) {
    UniqueFd next(::openat(folder_ ? folder_.get() : AT_FDCWD, name.c_str(),
                           O_PATH | O_DIRECTORY | O_CLOEXEC | flags));
    if (!next) return Fail(NotWritable(errno, path_));
    folder_ = std::move(next);
    if (name == "/") {
      place_ = name;
    } else if (!place_.empty() || name != ".") {
      place_ += name + "/";
    }
    return {};
  }

  // Links in the folders of /proc lead to files that are open. Their text is only a description.
  bool LeadsToOpenFile() const {
    struct statfs system = {};
    struct stat folder = {};
    return ::fstatfs(folder_.get(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC &&
           ::fstat(folder_.get(), &folder) == 0 && folder.st_ino != kProcRootInode;
  }

  Status CheckMayFollow(const std::string& name, const struct stat& link) const {
    struct stat folder = {};
    if (::fstat(folder_.get(), &folder) != 0) return Fail(NotWritable(errno, path_));
    if (IsOpenToAll(folder)) {
      return Refuse(ErrorCode::kPermission, path_,
                    fmt::format("{}{} is a symbolic link in a folder that everybody may write to; "
                                "name the file itself",
                                place_, name));
    }
    if (!IsOwnOrRoots(link) && link.st_uid != folder.st_uid) {
      return Refuse(ErrorCode::kPermission, path_,
                    fmt::format("{}{} is a symbolic link of user {} in a folder of user {}; name "
                                "the file itself",
                                place_, name, link.st_uid, folder.st_uid));
    }
    return {};
  }

  Status Follow(const std::string& name, const struct stat& link) {
    if (++link_count_ > kLinksMax) return Fail(NotWritable(ELOOP, path_));
    LMDBIO_TRY_VOID(CheckMayFollow(name, link));
    std::string target(PATH_MAX, '\0');
    const ssize_t size = ::readlinkat(folder_.get(), name.c_str(), target.data(), target.size());
    if (size < 0) return Fail(NotWritable(errno, path_));
    target.resize(static_cast<size_t>(size));
    rest_ = target + rest_;
    return target.starts_with('/') ? Enter("/", 0) : Status();
  }

  const std::string& path_;
  std::string rest_;   // of the path, behind the folder
  std::string place_;  // the folder as text, with a slash at its end, for messages
  UniqueFd folder_;
  int link_count_ = 0;
};

// The number of an open file of this process, if `name` in `folder` is a link to one that may be
// written.
std::optional<int> OwnDescriptor(int folder, const std::string& name) {
  struct stat mine = {}, found = {};
  if (::stat("/proc/self/fd", &mine) != 0 || ::fstat(folder, &found) != 0 ||
      !IsSameFile(mine, found)) {
    return std::nullopt;
  }
  int number = -1;
  std::from_chars(name.data(), name.data() + name.size(), number);
  const int flags = ::fcntl(number, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return std::nullopt;
  return number;
}

}  // namespace

Result<OutputPlace> OutputPlace::Find(const std::string& path) {
  LMDBIO_TRY(WalkEnd end, LinkWalk(path).Run());
  OutputPlace place;
  place.path_ = path;
  place.folder_ = std::move(end.folder);
  place.name_ = std::move(end.name);
  place.found_ = end.file;
  if (end.is_open_file) {
    place.kind_ = PlaceKind::kOpenFile;
    return place;
  }
  const mode_t mode = end.file.st_mode;
  if (mode == 0 || S_ISREG(mode)) return place;
  if (S_ISDIR(mode)) return Fail(NotWritable(EISDIR, path));
  if (S_ISSOCK(mode) || S_ISBLK(mode)) {
    return Refuse(
        ErrorCode::kInvalidArgument, path,
        fmt::format("it is a {}; name a file", S_ISSOCK(mode) ? "socket" : "block device"));
  }
  LMDBIO_TRY_VOID(place.CheckOwner(end.file));
  place.kind_ = PlaceKind::kStream;
  return place;
}

Status OutputPlace::CheckOwner(const struct stat& file) const {
  struct stat folder = {};
  if (::fstat(folder_.get(), &folder) != 0) return Fail(NotWritable(errno, path_));
  if (!IsOpenToAll(folder)) return {};
  if (!IsOwnOrRoots(file)) {
    return Refuse(ErrorCode::kPermission, path_,
                  fmt::format("it belongs to user {}, in a folder that everybody may write to; "
                              "name another file",
                              file.st_uid));
  }
  // Another user may have linked a file of this user to this name.
  if (file.st_nlink > 1) {
    return Refuse(
        ErrorCode::kPermission, path_,
        "it has other names, and is in a folder that everybody may write to; name another "
        "file");
  }
  return {};
}

Result<UniqueFd> OutputPlace::OpenDirectly() const {
  int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
  if (kind_ == PlaceKind::kOpenFile) {
    // A second opening of a redirected standard output would overwrite the text that is there.
    if (const std::optional<int> own = OwnDescriptor(folder(), name_)) {
      UniqueFd copy(::fcntl(*own, F_DUPFD_CLOEXEC, 0));
      if (!copy) return Fail(NotWritable(errno, path_));
      return copy;
    }
    flags |= O_TRUNC;
  } else {
    flags |= O_NOFOLLOW;
  }
  UniqueFd file(::openat(folder(), name_.c_str(), flags));
  if (!file) return Fail(NotWritable(errno, path_));
  struct stat opened = {};
  if (kind_ == PlaceKind::kStream &&
      (::fstat(file.get(), &opened) != 0 || !IsSameFile(opened, found_))) {
    return Refuse(ErrorCode::kPermission, path_, "another process has exchanged it meanwhile");
  }
  return file;
}

Status CheckLinks(const std::string& path) {
  Result<WalkEnd> end = LinkWalk(path).Run();
  if (end || end.error().error_number() != 0) return {};
  return Fail(std::move(end).error());
}

}  // namespace lmdbio::file
