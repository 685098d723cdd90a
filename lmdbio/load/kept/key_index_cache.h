// lmdbio/load/kept/key_index_cache.h - key indexes, kept for later jobs.
//
// Source: docs/keys.md "Key index".
#ifndef LMDBIO_LOAD_KEPT_KEY_INDEX_CACHE_H_
#define LMDBIO_LOAD_KEPT_KEY_INDEX_CACHE_H_

#include <optional>
#include <span>
#include <string>
#include <utility>

#include "lmdbio/base/status.h"
#include "lmdbio/file/keys/key_index.h"
#include "lmdbio/file/layout/database.h"
#include "lmdbio/load/kept/kept_folder.h"

namespace lmdbio::load {

// Threads: const methods from any.
class KeyIndexCache {
 public:
  explicit KeyIndexCache(KeptFolder folder) : folder_(std::move(folder)) {}

  // The note on a failure of Keep; nothing if none is needed.
  std::optional<std::string> NoteOf(const Status& kept) const {
    return folder_.NoteOf("the key index", kept);
  }

  // The kept index of `database`.
  // record_count  of the database
  // Errors: kNotFound  there is none
  //         kStale     it belongs to another database; kCorruption, kUnsupported, kPermission, kIo
  Result<file::KeyIndex> Find(const file::Database& database, uint64_t record_count) const;

  // Keeps an index. The file appears complete or not at all.
  // leaves  [leaf pages of the database, in key order]
  // Errors: kStale  the database changed meanwhile; kPermission, kResourceExhausted, kIo
  Status Keep(const file::Database& database, std::span<const PageNo> leaves,
              const file::KeyIndex& index) const;

  // The path of the kept index of `database`.
  std::string PathOf(const file::Database& database) const {
    return folder_.PathOf(database, KeptFolder::kKeyIndexSuffix);
  }

 private:
  KeptFolder folder_;
};

}  // namespace lmdbio::load
#endif  // LMDBIO_LOAD_KEPT_KEY_INDEX_CACHE_H_
