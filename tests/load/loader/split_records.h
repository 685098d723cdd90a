// tests/load/loader/split_records.h - one set of records twice: in a single file and in many.
#ifndef LMDBIO_TESTS_LOAD_LOADER_SPLIT_RECORDS_H_
#define LMDBIO_TESTS_LOAD_LOADER_SPLIT_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "lmdbio/load/files/opened_files.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {

enum class ValueKind {
  kInline,      // values on leaf pages
  kOverflow,    // each value in pages of its own
  kMixed,       // both, some of them empty
  kDuplicates,  // one to 60 values for each key
};

// liblmdb writes both. The names of the files have no leading zeros: data.0.mdb, data.10.mdb.
// Throws std::runtime_error on failure.
class SplitRecords {
 public:
  SplitRecords(size_t count, ValueKind kind, uint64_t key_count);

  const std::filesystem::path& single() const { return single_; }
  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path file(size_t i) const;
  // All files in their order.
  std::vector<load::DatabasePath> list() const;
  // Of the single file, as liblmdb's cursor finds them.
  const std::vector<KeyValue>& records() const { return records_; }

  // Fills `folder` with copies of the files in turn: s0.lmdb, s1.lmdb, ... Returns their records.
  // Requires: all files have the same number of records
  std::vector<KeyValue> CopyTo(const std::filesystem::path& folder, size_t copy_count) const;

 private:
  TempDir dir_;
  std::filesystem::path single_;
  std::filesystem::path folder_;
  size_t count_;
  std::vector<KeyValue> records_;
};

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_LOAD_LOADER_SPLIT_RECORDS_H_
