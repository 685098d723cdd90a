#include "tests/support/dump_oracle.h"

#include <charconv>
#include <stdexcept>

namespace lmdbio::test {
namespace {

CommandResult RunOnFile(std::string program, const std::vector<std::string>& options,
                        const std::filesystem::path& data_file) {
  std::vector<std::string> arguments = {std::move(program)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"-n", data_file.string()});
  return RunCommand(arguments);
}

// Takes the first line off `text`.
std::string_view NextLine(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) throw std::runtime_error("dump ends inside a line");
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

// " 6b6579" -> "key"
std::string Unhex(std::string_view line) {
  if (line.size() % 2 != 1 || line[0] != ' ') throw std::runtime_error("dump: not a data line");
  std::string bytes;
  for (size_t i = 1; i < line.size(); i += 2) {
    unsigned value = 0;
    const char* const end = line.data() + i + 2;
    const auto [stop, error] = std::from_chars(line.data() + i, end, value, 16);
    if (error != std::errc() || stop != end) throw std::runtime_error("dump: not hexadecimal");
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

DumpedDatabase ParseDatabase(std::string_view& text) {
  constexpr std::string_view kName = "database=";
  DumpedDatabase database;
  for (std::string_view line; (line = NextLine(text)) != "HEADER=END";) {
    database.headers.emplace_back(line);
    if (line.starts_with(kName)) database.name = line.substr(kName.size());
  }
  for (std::string_view line; (line = NextLine(text)) != "DATA=END";) {
    std::string key = Unhex(line);
    database.records.emplace_back(std::move(key), Unhex(NextLine(text)));
  }
  return database;
}

}  // namespace

CommandResult RunMdbDump(const std::filesystem::path& data_file,
                         const std::vector<std::string>& options) {
  return RunOnFile("mdb_dump", options, data_file);
}

CommandResult RunMdbStat(const std::filesystem::path& data_file,
                         const std::vector<std::string>& options) {
  return RunOnFile("mdb_stat", options, data_file);
}

std::vector<DumpedDatabase> ParseDump(std::string_view dump) {
  std::vector<DumpedDatabase> databases;
  while (!dump.empty()) databases.push_back(ParseDatabase(dump));
  return databases;
}

}  // namespace lmdbio::test
