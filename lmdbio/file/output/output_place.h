// lmdbio/file/output/output_place.h - the folder and the name to which the path of an output leads.
//
// The rules for symbolic links and for files of other users are those of docs/outputs.md. They do
// not depend on the settings of the kernel (fs.protected_symlinks and its relatives).
#ifndef LMDBIO_FILE_OUTPUT_OUTPUT_PLACE_H_
#define LMDBIO_FILE_OUTPUT_OUTPUT_PLACE_H_

#include <sys/stat.h>

#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {

enum class PlaceKind {
  kFile,      // a regular file, or nothing yet
  kStream,    // a character device or a FIFO
  kOpenFile,  // an open file by its number, as /dev/stdout
};

// The descriptor of the folder is kept. So another user who exchanges folders or links of the path
// cannot move an output elsewhere.
//
// Threads: const methods from any.
class OutputPlace {
 public:
  // Follows the links of `path`, also a link at its end to a file that does not exist yet.
  // Errors: kNotFound         a folder of the path does not exist
  //         kPermission       a folder may not be searched; the rules refuse a link, a device or a
  //                           FIFO, which the message names
  //         kInvalidArgument  the path leads to a folder, a socket or a block device
  //         kIo               more than 40 links
  static Result<OutputPlace> Find(const std::string& path);

  // Fails if the file belongs to another user, or has other names, in a folder that everybody may
  // write to.
  // Errors: kPermission
  Status CheckOwner(const struct stat& file) const;

  // Opens a stream or an open file for writing. An open file of this process is continued where it
  // stands; any other one is truncated. Waits for a reader of a FIFO.
  // Requires: kind() is not kFile
  // Errors: kPermission, kResourceExhausted, kIo
  Result<UniqueFd> OpenDirectly() const;

  PlaceKind kind() const { return kind_; }
  const std::string& path() const { return path_; }  // as given
  const std::string& name() const { return name_; }  // in the folder; not a link of the user
  int folder() const { return folder_.get(); }       // opened with O_PATH

 private:
  OutputPlace() = default;

  std::string path_;
  UniqueFd folder_;
  std::string name_;
  PlaceKind kind_ = PlaceKind::kFile;
  struct stat found_ = {};  // all 0 if there is no file
};

// Fails if the rules forbid to follow a link of `path`. Other errors of the path are left to the
// caller, who opens it.
// Errors: kPermission
Status CheckLinks(const std::string& path);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_OUTPUT_OUTPUT_PLACE_H_
