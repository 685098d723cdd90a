#include "tests/load/loader/databases.h"

#include <stdexcept>
#include <utility>

#include "lmdbio/file/writer/record_provenance.h"
#include "tests/fixtures/dump_oracle.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/file_bytes.h"

namespace lmdbio::test {

void ServedDatabases::Add(ServedDatabase database) {
  file::RecordProvenanceOptions options;
  options.path = database.data_file;
  options.database_name = database.database_name;
  const auto recorded = file::RecordProvenance(options);
  if (!recorded) throw std::runtime_error(recorded.error().message());
  all_.push_back(std::move(database));
}

void ServedDatabases::AddFixture(std::string_view fixture, const std::string& database_name) {
  const FixtureSpec spec = FindFixture(fixture);
  const std::filesystem::path directory = dir_.path() / std::to_string(all_.size());
  std::filesystem::create_directory(directory);
  const std::filesystem::path data_file = WriteFixture(spec, directory).data_file;
  Add({spec.name + " " + database_name, data_file, database_name,
       LmdbRecords(data_file, database_name)});
}

void ServedDatabases::AddVersion3(const std::string& fixture) {
  const std::filesystem::path data_file = dir_.path() / (fixture + ".v3");
  WriteWholeFile(data_file, V3FixtureBytes(fixture));
  std::vector<DumpedDatabase> databases = ParseDump(V3FixtureText(fixture, "dump"));
  const std::string named = V3FixtureText(fixture, "dump-a");
  if (!named.empty()) {
    databases = ParseDump(named);  // the main database then holds names, which no test loads
  }
  for (DumpedDatabase& database : databases) {
    if (database.records.empty()) continue;
    Add({fixture + ".v3 " + database.name, data_file, database.name, std::move(database.records)});
  }
}

}  // namespace lmdbio::test
