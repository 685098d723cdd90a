// tests/support/lmdb_oracle.h - the content of a version 1 file, as liblmdb reads it.
//
// All functions take the data file (not its directory), open it read-only without locks, and throw
// std::runtime_error with liblmdb's message on failure. `database` "" is the main database.
#ifndef TESTS_SUPPORT_LMDB_ORACLE_H_
#define TESTS_SUPPORT_LMDB_ORACLE_H_

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lmdb.h>

#include "lmdbio/base/types.h"

namespace lmdbio::test {

using KeyValue = std::pair<std::string, std::string>;

// Called once for each record, in key order. Lifetime: the bytes are valid until it returns.
using RecordVisitor = std::function<void(Bytes key, Bytes value)>;

// Walks a cursor over every record, duplicates included. Does not touch the values' pages.
void LmdbScan(const std::filesystem::path& data_file, std::string_view database,
              const RecordVisitor& visit);

// The same, as a copy of all records.
std::vector<KeyValue> LmdbRecords(const std::filesystem::path& data_file,
                                  std::string_view database = "");

MDB_stat LmdbStat(const std::filesystem::path& data_file, std::string_view database = "");

// MDB_DUPSORT, MDB_INTEGERKEY, ...
unsigned LmdbFlags(const std::filesystem::path& data_file, std::string_view database = "");

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_LMDB_ORACLE_H_
