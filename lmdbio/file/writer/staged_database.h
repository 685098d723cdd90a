// lmdbio/file/writer/staged_database.h - a new database under a working name until it is complete.
//
// The files grow under "PATH.partial" and get their name by one rename at the end. So a program
// never opens a partly loaded database, no reader is open during the load, and no lock file is
// needed.
#ifndef LMDBIO_FILE_WRITER_STAGED_DATABASE_H_
#define LMDBIO_FILE_WRITER_STAGED_DATABASE_H_

#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio::file {

// The two shapes that a database has on disk.
enum class DatabaseShape {
  kDirectory,   // PATH is a directory that holds data.mdb
  kSingleFile,  // PATH is the data file itself (MDB_NOSUBDIR)
};

// Owns the files under the working name and removes them unless they were published.
class StagedDatabase {
 public:
  // Creates the empty directory or file "PATH.partial". The parent must exist.
  //
  // Errors:  kInvalidArgument    PATH is empty or exists; PATH.partial exists (another load is
  //                              running, or was killed)
  //          kNotFound, kPermission, kResourceExhausted, kIo   from errno
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

  std::string path_;
  std::string working_path_;
  DatabaseShape shape_;
  bool owns_files_ = false;
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_WRITER_STAGED_DATABASE_H_
