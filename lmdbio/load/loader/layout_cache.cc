#include "lmdbio/load/loader/layout_cache.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/digest.h"
#include "lmdbio/base/errno_error.h"
#include "lmdbio/file/layout/snapshot.h"
#include "lmdbio/file/provenance/exact_codec.h"
#include "lmdbio/file/provenance/fingerprint.h"
#include "lmdbio/file/provenance/provenance.h"
#include "lmdbio/file/source/small_file.h"

namespace lmdbio::load {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOff = "off";
constexpr const char* kSuffix = ".prov";

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

// Names are 16 hexadecimal digits and the suffix. Other files of the folder are left alone.
bool IsKeptName(const std::string& name) {
  return name.size() == 16 + std::string_view(kSuffix).size() && name.ends_with(kSuffix) &&
         name.find_first_not_of("0123456789abcdef") == 16;
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

}  // namespace

std::optional<LayoutCache> LayoutCache::Of(const std::string& option) {
  const std::string named = option.empty() ? Variable("LMDBIO_CACHE") : option;
  if (named == kOff) return std::nullopt;
  if (!named.empty()) return LayoutCache(named, /*is_named=*/true);
  std::string folder = UserFolder();
  if (folder.empty()) return std::nullopt;
  return LayoutCache(std::move(folder), /*is_named=*/false);
}

// The identity of the file is a part of the name. Two databases that a program makes in the same
// way may be equal in all other fields, and in the leaf pages of the fingerprint, and yet differ.
std::string LayoutCache::PathOf(const file::Database& database) const {
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
  return fmt::format("{}/{:016x}{}", folder_, TextDigest(fields), kSuffix);
}

Result<file::Layout> LayoutCache::Find(const file::Database& database) const {
  return LayoutFromProvenance(database, PathOf(database));
}

Status LayoutCache::Keep(const file::Database& database, const FinishedWalk& walked) const {
  if (walked.leaves.size() < kLeafPagesMin) return {};
  LMDBIO_TRY(const file::Fingerprint fingerprint, file::TakeFingerprint(database, walked.leaves));
  file::ExactEncoder encoder(database.pages().page_format());
  LMDBIO_TRY_VOID(walked.expand(encoder));
  const std::vector<std::byte> bytes =
      file::EncodeExactLayout(fingerprint, walked.record_count, encoder.Finish());
  // A file that was written meanwhile may yield a layout of two states.
  LMDBIO_TRY_VOID(file::CheckSnapshotHolds(database.pages().source(), database.pages().snapshot()));
  std::error_code failed;
  fs::create_directories(folder_, failed);
  if (failed) return Fail(ErrnoError(failed.value(), folder_, "cannot be created"));
  LMDBIO_TRY_VOID(file::WriteFileAtomically(PathOf(database), bytes));
  DropOldest();
  return {};
}

void LayoutCache::DropOldest() const {
  std::vector<KeptFile> files = FilesIn(folder_);
  uint64_t bytes = 0;
  for (const KeptFile& file : files) bytes += file.bytes;
  std::ranges::sort(files, {}, &KeptFile::time);
  for (const KeptFile& file : files) {
    if (bytes <= kFolderBytesMax) return;
    std::error_code failed;
    fs::remove(file.path, failed);
    bytes -= file.bytes;
  }
}

}  // namespace lmdbio::load
