// tests/tools/make_tool.h - runs the built lmdbio-make and parses its records as Caffe does.
#ifndef LMDBIO_TESTS_TOOLS_MAKE_TOOL_H_
#define LMDBIO_TESTS_TOOLS_MAKE_TOOL_H_

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/run_command.h"
#include "tools/datum/caffe_datum.pb.h"

namespace lmdbio::test {

// Runs lmdbio-make with these arguments.
CommandResult RunMake(std::vector<std::string> arguments);

// The same with --json. Returns the report; throws if the program fails.
nlohmann::json Make(std::vector<std::string> arguments);

struct CaffeRecord {
  std::string key;
  caffe::Datum datum;
  size_t value_bytes = 0;
};

// The records in key order. Throws if a record is not a Datum.
std::vector<CaffeRecord> CaffeRecords(const std::filesystem::path& data_file);

}  // namespace lmdbio::test
#endif  // LMDBIO_TESTS_TOOLS_MAKE_TOOL_H_
