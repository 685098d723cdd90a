// lmdbio/load/files/opened_files.h - the databases of one or several data files, opened as one.
//
// A single file stays open. Of several, few are open at the same time, and all of them have one
// space of offsets and one numbering of pages.
//
// Source: docs/many_files.md.
#ifndef LMDBIO_LOAD_FILES_OPENED_FILES_H_
#define LMDBIO_LOAD_FILES_OPENED_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/file/blocks/block_engine.h"
#include "lmdbio/file/io/file_space.h"
#include "lmdbio/file/io/open_files.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/source/listed_source.h"
#include "lmdbio/load/files/snapshot_guard.h"
#include "lmdbio/load/plan/options.h"

namespace lmdbio::load {

// A database in a data file.
struct DatabasePath {
  std::string path;           // a directory with data.mdb, or a data file
  std::string database_name;  // empty: the main database
  friend bool operator==(const DatabasePath&, const DatabasePath&) = default;
};

// The databases `database_name` of all files that `path` stands for. Errors: as
// file::ListDataFiles
Result<std::vector<DatabasePath>> DatabasesOf(const std::string& path,
                                              const std::string& database_name);

// "PATH", or "FIRST and N more files".
std::string NameOfList(const std::vector<DatabasePath>& list);

struct OpenedFilesOptions {
  SnapshotMode snapshot = SnapshotMode::kImmutable;
  uint64_t open_files_max = 0;  // file::OpenFilesMax
};

// Threads: const; any number of callers.
class OpenedFiles {
 public:
  // Errors: kInvalidArgument  the list is empty; a file has another page format, or a database
  //                           other flags, than the first one; names both
  //         kUnsupported      several files are to be pinned
  //         those of SnapshotGuard::Open and file::Environment::Named; each names the file
  // Cost: a few small reads of each file
  static Result<std::unique_ptr<OpenedFiles>> Open(const std::vector<DatabasePath>& list,
                                                   const OpenedFilesOptions& options);
  OpenedFiles(const OpenedFiles&) = delete;
  OpenedFiles& operator=(const OpenedFiles&) = delete;

  size_t file_count() const { return databases_.size(); }
  bool is_single() const { return file_count() == 1; }
  const std::string& data_path(size_t file) const { return data_paths_[file]; }
  const file::Database& database(size_t file) const { return databases_[file]; }
  const file::Snapshot& snapshot(size_t file) const { return database(file).pages().snapshot(); }
  // The number of records of the file. Errors: as load::CountRecords
  // Cost: with duplicates a page walk, for the first call
  Result<uint64_t> CountRecords(size_t file) const;
  // The number of page 0 of the file.
  PageNo first_page(size_t file) const { return pages_->file(file).first; }

  // As of file::JoinedSource.
  const std::string& name() const { return source_->name(); }
  const file::JoinedPages& pages() const { return *pages_; }
  const SnapshotGuards& guards() const { return guards_; }
  const ByteSource& source() const { return *source_; }  // of all files
  // The end of the last file; of a single file its size.
  uint64_t end_bytes() const { return space_.end(); }
  // The largest file, for measurements of the storage.
  size_t largest() const;

  // An engine for the files. Errors: as file::OpenBlockEngine. Lifetime: this must outlive it
  Result<std::unique_ptr<file::BlockEngine>> OpenEngine(const file::EngineOptions& options) const;

 private:
  OpenedFiles() = default;
  Status OpenOne(const DatabasePath& path, SnapshotMode mode);
  Status CheckAlike(const file::Database& database) const;

  std::vector<std::string> data_paths_;
  std::unique_ptr<file::OpenFiles> open_;  // null for a single file
  std::vector<std::unique_ptr<ByteSource>> sources_;
  SnapshotGuards guards_;                  // borrow the sources
  std::vector<file::Database> databases_;  // the same
  mutable std::mutex counting_;
  mutable std::vector<std::optional<uint64_t>> counts_;  // [files], as far as counted
  file::FileSpace space_;
  std::optional<file::JoinedPages> pages_;
  std::unique_ptr<file::JoinedSource> source_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_FILES_OPENED_FILES_H_
