// tests/support/tiny_db.h - a short notation for databases that the real liblmdb writes.
//
//   TinyDb db(dir.path());
//   db.Put("key", "value").Use("tags", MDB_DUPSORT).Put("a", "1").Put("a", "2").Commit();
//   ... db.data_file() ...
//
// Every method throws std::runtime_error with liblmdb's message on failure. The file is not synced
// to disk, but it is complete for readers on this host when Commit returns.
#ifndef TESTS_SUPPORT_TINY_DB_H_
#define TESTS_SUPPORT_TINY_DB_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include <lmdb.h>

#include "lmdbio/base/types.h"

namespace lmdbio::test {

struct TinyDbOptions {
  uint32_t page_size_bytes = 0;            // 0: this machine's
  unsigned environment_flags = 0;          // MDB_NOSUBDIR, MDB_WRITEMAP, ...
  uint64_t map_bytes = uint64_t{1} << 30;  // with MDB_WRITEMAP also the length of the file
};

class TinyDb {
 public:
  // Creates or opens the environment `path`: an existing directory, or with MDB_NOSUBDIR a file.
  explicit TinyDb(std::filesystem::path path, TinyDbOptions options = {});
  ~TinyDb();  // aborts the open transaction
  TinyDb(const TinyDb&) = delete;
  TinyDb& operator=(const TinyDb&) = delete;

  // Selects the named database for the methods below, and creates it with `flags` if it is new. ""
  // is the main database, which is selected at first.
  TinyDb& Use(std::string_view name, unsigned flags = 0);

  TinyDb& Put(std::string_view key, std::string_view value, unsigned flags = 0);
  // Memory for a value, to be filled before the next call.
  MutableBytes Reserve(std::string_view key, uint64_t value_bytes);
  // Removes the key with all its values; the second form one value of a DUPSORT key.
  TinyDb& Delete(std::string_view key);
  TinyDb& Delete(std::string_view key, std::string_view value);

  // End the open transaction, if there is one. The first call after a Commit or Abort begins it.
  TinyDb& Commit();
  TinyDb& Abort();

  // Writes a compacted copy of the committed database into the existing, empty directory.
  void CopyCompacted(const std::filesystem::path& directory) const;

  // The data file, with or without MDB_NOSUBDIR.
  std::filesystem::path data_file() const;
  // The named databases that Use has created or opened.
  const std::set<std::string>& database_names() const { return names_; }

 private:
  void Begin();
  void OpenDatabase();

  std::filesystem::path path_;
  TinyDbOptions options_;
  MDB_env* environment_ = nullptr;
  MDB_txn* transaction_ = nullptr;
  MDB_dbi database_ = 0;  // valid while transaction_ is not null
  std::string name_;
  unsigned flags_ = 0;
  std::set<std::string> names_;
};

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_TINY_DB_H_
