// lmdbio/file/output/new_file.h - a file without a name until it is complete.
//
// The kernel frees such a file (O_TMPFILE) when its process ends. A file that replaces another one
// has a working name for the time between two system calls. On file systems that know no files
// without a name, it has the working name from its creation on. If the process is killed in this
// time, the next NewFile for the same place removes the file (file_owner.h).
#ifndef LMDBIO_FILE_OUTPUT_NEW_FILE_H_
#define LMDBIO_FILE_OUTPUT_NEW_FILE_H_

#include <string>
#include <utility>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"
#include "lmdbio/file/output/output_place.h"

namespace lmdbio::file {

// Threads: one at a time.
class NewFile {
 public:
  // Requires: the kind of the place is kFile
  // Errors: kPermission         the folder may not be written
  //         kNotFound           the folder has been removed
  //         kResourceExhausted, kIo
  static Result<NewFile> Create(OutputPlace place);

  // Without Publish, the file of the place stays as it was.
  ~NewFile();
  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;

  const UniqueFd& file() const { return file_; }

  // Makes this the file of the place, durably. Called once, last.
  // Errors: kPermission, kInvalidArgument  the old file cannot be replaced
  //         kResourceExhausted, kIo
  Status Publish();

 private:
  explicit NewFile(OutputPlace place) : place_(std::move(place)) {}
  int MakeNamed();
  int Link(const std::string& name) const;
  int CopyToWorkingName();
  Status Replace();

  OutputPlace place_;
  UniqueFd file_;
  std::string working_name_;  // in the folder of the place; empty: the file has no name
};

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_OUTPUT_NEW_FILE_H_
