#include "lmdbio/load/files/opened_files.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "lmdbio/file/io/data_path.h"
#include "lmdbio/file/io/file_list.h"
#include "lmdbio/file/source/file_source.h"
#include "lmdbio/load/locate/locator.h"

namespace lmdbio::load {
namespace {

// The files of a list together. No offset below it overflows in a sum.
constexpr uint64_t kBytesMax = uint64_t{1} << 62;

// Two databases of a list differ in `what`.
Status Unlike(const file::Database& one, const file::Database& first, std::string_view what,
              uint64_t value, uint64_t value_of_first) {
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{}: has {} {}, but {} has {}; the files of a list must be alike",
                          one.pages().source().name(), what, value, first.pages().source().name(),
                          value_of_first));
}

}  // namespace

Result<std::vector<DatabasePath>> DatabasesOf(const std::string& path,
                                              const std::string& database_name) {
  LMDBIO_TRY(std::vector<std::string> files, file::ListDataFiles(path));
  std::vector<DatabasePath> list;
  list.reserve(files.size());
  for (std::string& one : files) list.push_back({std::move(one), database_name});
  return list;
}

std::string NameOfList(const std::vector<DatabasePath>& list) {
  if (list.empty()) return "an empty list";
  if (list.size() == 1) return list.front().path;
  return fmt::format("{} and {} more files", list.front().path, list.size() - 1);
}

Status OpenedFiles::CheckAlike(const file::Database& database) const {
  if (databases_.empty()) return {};
  const file::Database& first = databases_.front();
  const file::PageFormat format = database.pages().page_format();
  const file::PageFormat format_of_first = first.pages().page_format();
  if (format.version() != format_of_first.version()) {
    return Unlike(database, first, "data version", static_cast<uint32_t>(format.version()),
                  static_cast<uint32_t>(format_of_first.version()));
  }
  if (format.page_size_bytes() != format_of_first.page_size_bytes()) {
    return Unlike(database, first, "a page size of", format.page_size_bytes(),
                  format_of_first.page_size_bytes());
  }
  const bool has_duplicates = database.record().has_duplicates();
  if (has_duplicates != first.record().has_duplicates()) {
    const auto& [with, without] =
        has_duplicates ? std::pair(database, first) : std::pair(first, database);
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: has duplicates (MDB_DUPSORT), but {} has not; the files of a list "
                            "must be alike",
                            with.pages().source().name(), without.pages().source().name()));
  }
  // Integer keys, keys in reverse order, and kinds of duplicates.
  if (database.record().flags != first.record().flags) {
    return Unlike(database, first, "database flags", database.record().flags, first.record().flags);
  }
  return {};
}

Status OpenedFiles::OpenOne(const DatabasePath& path, SnapshotMode mode) {
  const size_t file = sources_.size();
  if (open_) {
    sources_.push_back(std::make_unique<file::ListedSource>(*open_, file));
  } else {
    LMDBIO_TRY(std::unique_ptr<ByteSource> source, file::FileSource::Open(data_paths_[file]));
    sources_.push_back(std::move(source));
  }
  LMDBIO_TRY(SnapshotGuard guard, SnapshotGuard::Open(*sources_.back(), mode));
  const file::Environment& environment = guard.environment();
  file::Database database = environment.Main();
  if (!path.database_name.empty()) {
    LMDBIO_TRY(database, environment.Named(path.database_name));
  }
  LMDBIO_TRY_VOID(CheckAlike(database));
  const uint64_t size_bytes = environment.snapshot().file_size_bytes;
  if (size_bytes > kBytesMax - space_.end()) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: the files up to this one have more than {} bytes",
                            data_paths_[file], kBytesMax));
  }
  space_.Add(size_bytes);
  const PageNo first{environment.snapshot().page_format.PagesBefore(space_.begin(file))};
  if (pages_) pages_->Add(environment.pages(), first);
  if (!pages_) pages_.emplace(environment.pages());
  databases_.push_back(std::move(database));
  guards_.Add(std::move(guard));
  return {};
}

Result<std::unique_ptr<OpenedFiles>> OpenedFiles::Open(const std::vector<DatabasePath>& list,
                                                       const OpenedFilesOptions& options) {
  if (list.empty()) return Fail(ErrorCode::kInvalidArgument, "the list of files is empty");
  if (list.size() > 1 && options.snapshot == SnapshotMode::kPinned) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("{}: snapshot pinned holds a file open, and a list has many; use "
                            "immutable or optimistic",
                            NameOfList(list)));
  }
  std::unique_ptr<OpenedFiles> opened(new OpenedFiles());
  for (const DatabasePath& one : list) {
    LMDBIO_TRY(std::string data_path, file::FindDataFile(one.path));
    opened->data_paths_.push_back(std::move(data_path));
  }
  if (list.size() > 1) {
    opened->open_ = std::make_unique<file::OpenFiles>(opened->data_paths_,
                                                      file::OpenFilesMax(options.open_files_max));
  }
  for (const DatabasePath& one : list) LMDBIO_TRY_VOID(opened->OpenOne(one, options.snapshot));
  std::vector<const ByteSource*> sources;
  for (const auto& source : opened->sources_) sources.push_back(source.get());
  opened->source_ = std::make_unique<file::JoinedSource>(opened->space_, std::move(sources));
  opened->counts_.resize(opened->file_count());
  return opened;
}

Result<uint64_t> OpenedFiles::CountRecords(size_t file) const {
  const std::scoped_lock lock(counting_);
  std::optional<uint64_t>& kept = counts_[file];
  if (!kept) {
    LMDBIO_TRY(kept, load::CountRecords(database(file)));
  }
  return *kept;
}

size_t OpenedFiles::largest() const {
  size_t largest = 0;
  for (size_t i = 1; i < file_count(); ++i) {
    if (space_.size_bytes(i) > space_.size_bytes(largest)) largest = i;
  }
  return largest;
}

Result<std::unique_ptr<file::BlockEngine>> OpenedFiles::OpenEngine(
    const file::EngineOptions& options) const {
  if (!open_) return file::OpenBlockEngine(data_paths_.front(), options);
  return file::OpenBlockEngine(file::JoinedFiles{open_.get(), &space_}, options);
}

}  // namespace lmdbio::load
