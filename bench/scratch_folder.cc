#include "bench/scratch_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/output/file_owner.h"

namespace lmdbio::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "lmdbio-scratch-";

UniqueFd OpenFolder(const fs::path& path) {
  return UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

bool IsAt(const UniqueFd& folder, const fs::path& path) {
  struct stat opened = {}, named = {};
  return ::fstat(folder.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// Drivers of benchmarks mount storage in their folders.
bool HasMounts(const fs::path& folder) {
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    if (line.find(" " + folder.string() + "/") != std::string::npos) return true;
  }
  return false;
}

void RemoveIfAbandoned(const fs::path& path) {
  const UniqueFd folder = OpenFolder(path);
  struct stat found = {};
  struct statfs system = {};
  if (!folder || ::fstat(folder.get(), &found) != 0 || found.st_uid != ::geteuid() ||
      ::fstatfs(folder.get(), &system) != 0 ||
      file::MayHaveRemoteOwner(system.f_type, std::chrono::seconds(0)) || HasMounts(path) ||
      !file::LockAsOwner(folder) || !IsAt(folder, path)) {
    return;
  }
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

}  // namespace

Result<ScratchFolder> ScratchFolder::Make(const fs::path& parent, std::string_view name) {
  std::error_code failed;
  for (fs::directory_iterator entry(parent, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().filename().string().starts_with(kBegin)) RemoveIfAbandoned(entry->path());
  }
  while (true) {
    std::string path = (parent / kBegin).string();
    path.append(name).append("-XXXXXX");
    if (::mkdtemp(path.data()) == nullptr) {
      return Fail(ErrnoError(errno, path, "cannot be created"));
    }
    UniqueFd folder = OpenFolder(path);
    // Until it is locked, another process may take it for an abandoned one.
    if (folder && file::LockAsOwner(folder) && IsAt(folder, path)) {
      return ScratchFolder(path, std::move(folder));
    }
  }
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), folder_(std::move(other.folder_)) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace lmdbio::bench
