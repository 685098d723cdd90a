// tests/support/tiny_db.h - databases written by the real liblmdb, in a few words.
//
//   TinyDb db(dir.path());
//   db.Put("key", "value").Use("tags", MDB_DUPSORT).Put("a", "1").Put("a", "2").Commit();
//   ... db.data_file() ...
//
// Every method throws std::runtime_error with liblmdb's words on failure. Nothing is synced to
// disk: the file is complete for readers on this machine as soon as Commit returns.
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
  ~TinyDb();  // drops what was not committed
  TinyDb(const TinyDb&) = delete;
  TinyDb& operator=(const TinyDb&) = delete;

  // Turns the verbs below to the named database, created with `flags` if it is new. "" is the main
  // database, where the verbs start.
  TinyDb& Use(std::string_view name, unsigned flags = 0);

  TinyDb& Put(std::string_view key, std::string_view value, unsigned flags = 0);
  // Room for a value, to be filled before the next verb.
  MutableBytes Reserve(std::string_view key, uint64_t value_bytes);
  // Removes the key with all its values; the second form one value of a DUPSORT key.
  TinyDb& Delete(std::string_view key);
  TinyDb& Delete(std::string_view key, std::string_view value);

  // End the transaction that the first verb since the last Commit or Abort began, if there is one.
  TinyDb& Commit();
  TinyDb& Abort();

  // Writes a compacted copy of what is committed into the existing, empty directory.
  void CopyCompacted(const std::filesystem::path& directory) const;

  // The file itself, whether or not it stands in a directory of its own.
  std::filesystem::path data_file() const;
  // The named databases that Use has created or opened, without the main one.
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
