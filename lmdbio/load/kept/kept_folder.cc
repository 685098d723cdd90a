#include "lmdbio/load/kept/kept_folder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"
#include "lmdbio/base/errno_error.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/output/file_owner.h"
#include "lmdbio/file/source/small_file.h"

namespace lmdbio::load {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOff = "off";

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The cache folder of the user; "" if there is none.
std::string UserFolder() {
  const std::string cache = Variable("XDG_CACHE_HOME");
  if (!cache.empty()) return cache + "/lmdbio";
  const std::string home = Variable("HOME");
  return home.empty() ? "" : home + "/.cache/lmdbio";
}

// Names are 16 hexadecimal digits and a suffix. Other files of the folder are left alone.
bool IsKeptName(std::string_view name) {
  const size_t digits = name.find_first_not_of("0123456789abcdef");
  if (digits != 16) return false;
  const std::string_view suffix = name.substr(digits);
  return suffix == KeptFolder::kLayoutSuffix || suffix == KeptFolder::kKeyIndexSuffix;
}

struct KeptFile {
  fs::path path;
  fs::file_time_type time;
  uint64_t bytes = 0;
};

// Files that vanish meanwhile are left out: other jobs drop files, too.
std::vector<KeptFile> FilesIn(const std::string& folder) {
  std::vector<KeptFile> files;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed)) {
    if (!IsKeptName(entry.path().filename().string())) continue;
    std::error_code gone;
    const KeptFile file{entry.path(), entry.last_write_time(gone), entry.file_size(gone)};
    if (!gone) files.push_back(file);
  }
  return files;
}

// Removes the unfinished files of jobs that have ended. A job removes those for its own database by
// itself, but another database may never be used again.
void DropAbandoned(const std::string& folder) {
  const UniqueFd opened(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    if (opened && file::IsWorkingName(name)) file::RemoveAbandoned(opened.get(), name);
  }
}

}  // namespace

std::optional<KeptFolder> KeptFolder::Of(const std::string& option) {
  const std::string named = option.empty() ? Variable("LMDBIO_CACHE") : option;
  if (named == kOff) return std::nullopt;
  if (!named.empty()) return KeptFolder(named, /*is_named=*/true);
  std::string folder = UserFolder();
  if (folder.empty()) return std::nullopt;
  return KeptFolder(std::move(folder), /*is_named=*/false);
}

// The identity of the file is a part of the name. Two databases that a program makes in the same
// way may be equal in all other fields, and in the leaf pages of the fingerprint, and yet differ.
std::optional<std::string> KeptFolder::NoteOf(std::string_view what, const Status& kept) const {
  if (kept || !is_named_) return std::nullopt;
  return fmt::format("{} is not kept: {}", what, kept.error().message());
}

std::string KeptFolder::PathOf(const file::Database& database, std::string_view suffix) const {
  const file::Snapshot& snapshot = database.pages().snapshot();
  const std::string& path = database.pages().source().name();
  struct stat file = {};
  // Without an identity the name is that of no file.
  if (::stat(path.c_str(), &file) != 0) file = {};
  std::error_code failed;
  const std::string fields = fmt::format(
      "{} {} {} {}.{} {} {} {} {} {} {} {} {}", fs::weakly_canonical(path, failed).string(),
      file.st_dev, file.st_ino, file.st_mtim.tv_sec, file.st_mtim.tv_nsec, snapshot.file_size_bytes,
      snapshot.meta.transaction_id, snapshot.page_count(), snapshot.page_format.page_size_bytes(),
      database.record().root.value, database.entry_count(), database.record().leaf_pages,
      database.name());
  return fmt::format("{}/{:016x}{}", folder_, TextDigest(fields), suffix);
}

Status KeptFolder::Keep(const std::string& path, Bytes bytes) const {
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) return Fail(ErrnoError(failed.value(), folder_, "cannot be created"));
  LMDBIO_TRY_VOID(file::WriteFileAtomically(path, bytes));
  DropAbandoned(folder_);
  DropOldest();
  return {};
}

void KeptFolder::DropOldest() const {
  std::vector<KeptFile> files = FilesIn(folder_);
  uint64_t bytes = 0;
  for (const KeptFile& file : files) bytes += file.bytes;
  std::ranges::sort(files, {}, &KeptFile::time);
  for (const KeptFile& file : files) {
    if (bytes <= kBytesMax) return;
    std::error_code failed;
    fs::remove(file.path, failed);
    bytes -= file.bytes;
  }
}

}  // namespace lmdbio::load
