// lmdbio/load/kept/layout_cache.h - layouts that page walks have found, kept for later jobs.
//
// A walk over a database without provenance ends with its exact layout. It is kept in a folder of
// the user (kept_folder.h), so that the next job begins as with provenance. The content of a kept
// file is a provenance file, and its fingerprint is compared before it is used.
//
// Source: docs/loader.md "Kept layouts".
#ifndef LMDBIO_LOAD_KEPT_LAYOUT_CACHE_H_
#define LMDBIO_LOAD_KEPT_LAYOUT_CACHE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "lmdbio/base/status.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/file/layout/layout.h"
#include "lmdbio/load/kept/kept_folder.h"
#include "lmdbio/load/locate/locator.h"

namespace lmdbio::load {

// Threads: const methods from any.
class LayoutCache {
 public:
  // A database with fewer leaf pages is walked in a few milliseconds.
  static constexpr uint64_t kLeafPagesMin = 256;

  // The cache of the option `layout_cache`, as KeptFolder::Of. Nothing: no layouts are kept.
  static std::optional<LayoutCache> Of(const std::string& option);

  // Whether the user named the folder: then it is worth a note if it cannot be used.
  bool is_named() const { return folder_.is_named(); }
  // The note on a failure of Keep; nothing if none is needed.
  std::optional<std::string> NoteOf(const Status& kept) const {
    return folder_.NoteOf("the layout", kept);
  }

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
  std::string PathOf(const file::Database& database) const {
    return folder_.PathOf(database, KeptFolder::kLayoutSuffix);
  }

 private:
  explicit LayoutCache(KeptFolder folder) : folder_(std::move(folder)) {}

  KeptFolder folder_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_KEPT_LAYOUT_CACHE_H_
