// tests/support/dump_oracle.h - LMDB's own command line tools as oracles, and their dump format.
//
// mdb_dump before 0.9.36 hides read errors: compare the number of records with mdb_stat as well.
#ifndef TESTS_SUPPORT_DUMP_ORACLE_H_
#define TESTS_SUPPORT_DUMP_ORACLE_H_

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/lmdb_oracle.h"
#include "tests/support/run_command.h"

namespace lmdbio::test {

// The system's mdb_dump and mdb_stat on a version 1 data file (not its directory). They leave a
// lock file beside it. `options` go in front, such as {"-a"} or {"-s", "name"}.
CommandResult RunMdbDump(const std::filesystem::path& data_file,
                         const std::vector<std::string>& options = {});
CommandResult RunMdbStat(const std::filesystem::path& data_file,
                         const std::vector<std::string>& options = {"-e", "-f", "-a"});

// One database of a dump.
struct DumpedDatabase {
  std::string name;                  // "" if the dump names none
  std::vector<std::string> headers;  // "format=bytevalue", ... as they stand, without HEADER=END
  std::vector<KeyValue> records;     // in the order of the dump
};

// The databases of a dump in format=bytevalue, as `mdb_dump` and `mdb_dump -a` print it.
// Throws std::runtime_error on anything else, a missing DATA=END included.
std::vector<DumpedDatabase> ParseDump(std::string_view dump);

}  // namespace lmdbio::test
#endif  // TESTS_SUPPORT_DUMP_ORACLE_H_
