// lmdbio/load/kept/kept_folder.h - the folder of the user with files that are kept for later jobs.
//
// The name of a file is a digest of the path, the identity and the time of the data file, and of
// the fields that identify the state of the database. So a folder may serve any number of databases
// and of jobs that start together.
//
// Source: docs/loader.md "Kept layouts".
#ifndef LMDBIO_LOAD_KEPT_KEPT_FOLDER_H_
#define LMDBIO_LOAD_KEPT_KEPT_FOLDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/database.h"

namespace lmdbio::load {

// Threads: const methods from any.
class KeptFolder {
 public:
  // The oldest files leave a folder with more bytes.
  static constexpr uint64_t kBytesMax = uint64_t{1} << 30;
  static constexpr std::string_view kLayoutSuffix = ".prov";
  static constexpr std::string_view kKeyIndexSuffix = ".keys";

  // The folder of the option `layout_cache`: a folder, or "off"; "": the folder in the environment
  // variable LMDBIO_CACHE (which may also be "off"), else lmdbio in the user's cache folder
  // (XDG_CACHE_HOME, else .cache in HOME). Nothing: no files are kept.
  static std::optional<KeptFolder> Of(const std::string& option);

  // Whether the user named the folder: then it is worth a note if it cannot be used.
  bool is_named() const { return is_named_; }

  // The note on a file that could not be kept; nothing if it was, or if the user did not name the
  // folder.
  // what  "the layout"
  std::optional<std::string> NoteOf(std::string_view what, const Status& kept) const;

  // The path of a file that is kept for `database`.
  // suffix  one of those above
  std::string PathOf(const file::Database& database, std::string_view suffix) const;

  // Keeps a file, which appears complete or not at all.
  // path  from PathOf
  // Errors: kPermission, kResourceExhausted, kIo
  Status Keep(const std::string& path, Bytes bytes) const;

 private:
  KeptFolder(std::string folder, bool is_named) : folder_(std::move(folder)), is_named_(is_named) {}
  void DropOldest() const;

  std::string folder_;
  bool is_named_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_KEPT_KEPT_FOLDER_H_
