// tests/tools/make_tool.h - the built lmdbio-make, and its records as Caffe understands them.
#ifndef TESTS_TOOLS_MAKE_TOOL_H_
#define TESTS_TOOLS_MAKE_TOOL_H_

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/run_command.h"
#include "tools/datum/caffe_datum.pb.h"

namespace lmdbio::test {

// Runs lmdbio-make with these arguments.
CommandResult RunMake(std::vector<std::string> arguments);

// The same with --json; throws unless it succeeds. Returns what it reports.
nlohmann::json Make(std::vector<std::string> arguments);

struct CaffeRecord {
  std::string key;
  caffe::Datum datum;
  size_t value_bytes = 0;
};

// The records in key order; throws if one is no Datum.
std::vector<CaffeRecord> CaffeRecords(const std::filesystem::path& data_file);

// The names in a directory, sorted.
std::vector<std::string> NamesIn(const std::filesystem::path& directory);

}  // namespace lmdbio::test
#endif  // TESTS_TOOLS_MAKE_TOOL_H_
