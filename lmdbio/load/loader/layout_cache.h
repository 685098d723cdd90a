// lmdbio/load/loader/layout_cache.h - layouts that page walks have found, kept for later jobs.
//
// A walk over a database without provenance ends with its exact layout. It is kept in a folder of
// the user, so that the next job begins as with provenance. The name of a kept file is a digest of
// the path, the identity and the time of the data file, and of the fields that identify the state
// of the database. Its content is a provenance file, and its fingerprint is compared before it is
// used. So a folder may serve any number of databases and of jobs that start together.
//
// Source: docs/loader.md "Kept layouts".
#ifndef LMDBIO_LOAD_LOADER_LAYOUT_CACHE_H_
#define LMDBIO_LOAD_LOADER_LAYOUT_CACHE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/load/locate/locator.h"

namespace lmdbio::load {

// Threads: const methods from any.
class LayoutCache {
 public:
  // A database with fewer leaf pages is walked in a few milliseconds.
  static constexpr uint64_t kLeafPagesMin = 256;
  // The oldest files leave a folder with more bytes.
  static constexpr uint64_t kFolderBytesMax = uint64_t{1} << 30;

  // The cache of the option `layout_cache`: a folder, or "off"; "": the folder in the environment
  // variable LMDBIO_CACHE (which may also be "off"), else lmdbio in the user's cache folder
  // (XDG_CACHE_HOME, else .cache in HOME). Nothing: no layouts are kept.
  static std::optional<LayoutCache> Of(const std::string& option);

  // Whether the user named the folder: then it is worth a note if it cannot be used.
  bool is_named() const { return is_named_; }

  // The kept layout of `database`.
  // Errors: kNotFound  there is none
  //         kStale     it belongs to another database; kCorruption, kUnsupported, kPermission, kIo
  Result<file::Layout> Find(const file::Database& database) const;

  // Keeps a walked layout. The file appears complete or not at all. Does nothing for a database
  // with few leaf pages.
  // Errors: kStale  the database changed during the walk; kPermission, kResourceExhausted, kIo
  // Cost: 20 ns a record, and the reads of eight leaf pages
  Status Keep(const file::Database& database, const FinishedWalk& walked) const;

  // The path of the kept layout of `database`.
  std::string PathOf(const file::Database& database) const;

 private:
  LayoutCache(std::string folder, bool is_named)
      : folder_(std::move(folder)), is_named_(is_named) {}
  void DropOldest() const;

  std::string folder_;
  bool is_named_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_LOADER_LAYOUT_CACHE_H_
