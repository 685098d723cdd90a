// tests/load/loader/databases.h - databases of every kind that a loader must serve, with their
// records and their provenance.
#ifndef LMDBIO_TESTS_LOAD_LOADER_DATABASES_H_
#define LMDBIO_TESTS_LOAD_LOADER_DATABASES_H_

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fixtures/lmdb_oracle.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {

struct ServedDatabase {
  std::string name;                 // for messages
  std::filesystem::path data_file;  // its provenance lies beside it
  std::string database_name;        // empty: the main database
  std::vector<KeyValue> records;    // in key order
};

// Databases in a directory of their own. Throws std::runtime_error on failure.
class ServedDatabases {
 public:
  // A database of the catalogue (tests/fixtures/lmdb_fixture.h), with the records that liblmdb
  // finds.
  void AddFixture(std::string_view fixture, const std::string& database_name = "");
  // All databases with records in a file of data version 3 (tests/fixtures/v3_fixture.h). The
  // records come from the dump of LMDB 1.0.
  void AddVersion3(const std::string& fixture);

  const std::vector<ServedDatabase>& all() const { return all_; }

 private:
  void Add(ServedDatabase database);

  TempDir dir_;
  std::vector<ServedDatabase> all_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_LOAD_LOADER_DATABASES_H_
