// lmdbio/file/writer/staged_database.h - a new database under a working name until it is complete.
//
// The files grow under "PATH.lmdbio-partial" and get their name by one rename at the end. So a
// program never opens a partly loaded database, no reader is open during the load, and LMDB needs
// no lock file. The data file is locked by its owner (file/output/file_owner.h). So a later load
// finds the files of loads that were killed, and removes them.
#ifndef LMDBIO_FILE_WRITER_STAGED_DATABASE_H_
#define LMDBIO_FILE_WRITER_STAGED_DATABASE_H_

#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {

// The two shapes that a database has on disk.
enum class DatabaseShape {
  kDirectory,   // PATH is a directory that holds data.mdb
  kSingleFile,  // PATH is the data file itself (MDB_NOSUBDIR)
};

// Owns the files under the working name and removes them unless they were published.
class StagedDatabase {
 public:
  // Creates "PATH.lmdbio-partial", an empty data file or a directory with one. The parent must
  // exist. Before that, it removes the files of loads into the same parent that were killed.
  //
  // Errors:  kInvalidArgument    PATH is empty or exists; PATH.lmdbio-partial exists, because
  //                              another load is running, or was not made by a load of this user
  //          kPermission         also: PATH has a link that must not be followed (docs/outputs.md)
  //          kNotFound, kResourceExhausted, kIo   from errno
  static Result<StagedDatabase> Create(std::string path, DatabaseShape shape);

  StagedDatabase(StagedDatabase&& other) noexcept;
  StagedDatabase& operator=(StagedDatabase&&) = delete;
  ~StagedDatabase();

  // Renames the files to PATH, durably. Call once, after they are closed and synced.
  // Errors:  kInvalidArgument  PATH was created during the load; it is not changed
  //          kIo, kPermission, kResourceExhausted  from errno
  Status Publish();

  const std::string& path() const { return path_; }                  // the final name
  const std::string& working_path() const { return working_path_; }  // the name until Publish
  std::string working_data_file() const;                             // path of the data file

 private:
  StagedDatabase(std::string path, DatabaseShape shape);
  Status MakeFiles();

  std::string path_;
  std::string working_path_;
  DatabaseShape shape_;
  bool owns_files_ = false;
  UniqueFd data_file_;  // locked
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_WRITER_STAGED_DATABASE_H_
