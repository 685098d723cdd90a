#include "tests/tools/make_tool.h"

#include <stdexcept>
#include <utility>

#include "tests/fixtures/lmdb_oracle.h"

namespace lmdbio::test {

CommandResult RunMake(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), LMDBIO_MAKE_PROGRAM);
  return RunCommand(arguments);
}

nlohmann::json Make(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const CommandResult result = RunMake(std::move(arguments));
  if (result.exit_code != 0) throw std::runtime_error(result.errors);
  return nlohmann::json::parse(result.output);
}

std::vector<CaffeRecord> CaffeRecords(const std::filesystem::path& data_file) {
  std::vector<CaffeRecord> records;
  for (const auto& [key, value] : LmdbRecords(data_file)) {
    CaffeRecord record{key, {}, value.size()};
    if (!record.datum.ParseFromString(value)) throw std::runtime_error(key + ": not a Datum");
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace lmdbio::test
