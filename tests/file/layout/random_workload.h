// tests/file/layout/random_workload.h - a database file after random puts, overwrites, deletes,
// cursor writes, drops and aborts, written by the real liblmdb.
//
// The workload avoids three operations, because all liblmdb versions miscount or lose records in
// them: two deletes through a cursor with duplicates without a seek in between, an empty duplicate,
// and two cursors that delete duplicates of one database.
#ifndef LMDBIO_TESTS_FILE_LAYOUT_RANDOM_WORKLOAD_H_
#define LMDBIO_TESTS_FILE_LAYOUT_RANDOM_WORKLOAD_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lmdb.h>

#include "tests/support/random.h"

namespace lmdbio::test {

// The form of the generated keys or duplicate values of a database.
struct TextKind {
  uint64_t size_min = 1;
  uint64_t size_max = 1;
  bool is_integer = false;  // of size_min bytes; small numbers, so that they repeat
};

struct WorkloadDatabase {
  std::string name;    // "" is the main database
  unsigned flags = 0;  // MDB_DUPSORT, ...
  TextKind keys;
  TextKind duplicates;            // values where flags have MDB_DUPSORT
  std::vector<std::string> pool;  // keys that may be in use, for later operations
};

// Throws std::runtime_error with liblmdb's message on any unexpected result.
class RandomWorkload {
 public:
  // Chooses page size, environment and databases by `seed`; `directory` exists and is empty.
  RandomWorkload(const std::filesystem::path& directory, uint64_t seed);
  ~RandomWorkload();
  RandomWorkload(const RandomWorkload&) = delete;
  RandomWorkload& operator=(const RandomWorkload&) = delete;

  // Some dozens of changes in one transaction, which is committed or, sometimes, aborted. A reader
  // may be open at the same time, so that the file grows.
  void RunTransaction();

  MDB_env* environment() const { return environment_; }
  std::filesystem::path data_file() const { return directory_ / "data.mdb"; }
  const std::vector<WorkloadDatabase>& databases() const { return databases_; }

  // A key that may exist, and a key that probably does not.
  std::string UsedKey(WorkloadDatabase& database);
  std::string FreshKey(const WorkloadDatabase& database);

 private:
  struct Write;  // an open transaction and one database in it

  WorkloadDatabase ChooseDatabase(const std::string& name);
  TextKind ChooseKind(bool is_integer, bool is_fixed);
  std::string TextOf(const TextKind& kind);
  std::string ValueFor(const WorkloadDatabase& database, const std::string& key);
  uint64_t ValueBytes(uint64_t key_bytes);

  void Change(MDB_txn* transaction);
  void Put(const Write& write);
  void Reserve(const Write& write);
  void PutMany(const Write& write);
  void PutMultiple(const Write& write);
  void Append(const Write& write);
  void Delete(const Write& write);
  void DeleteSome(const Write& write);
  void ReplaceCurrent(const Write& write);
  void Nest(MDB_txn* parent);

  Random random_;
  std::filesystem::path directory_;
  uint32_t page_size_bytes_ = 0;
  unsigned environment_flags_ = 0;
  uint64_t key_bytes_max_ = 0;
  MDB_env* environment_ = nullptr;
  MDB_txn* reader_ = nullptr;
  std::vector<WorkloadDatabase> databases_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_FILE_LAYOUT_RANDOM_WORKLOAD_H_
