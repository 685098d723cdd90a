// tools/make/database_load.h - the load of one database, which all commands of lmdbio-make share.
#ifndef LMDBIO_TOOLS_MAKE_DATABASE_LOAD_H_
#define LMDBIO_TOOLS_MAKE_DATABASE_LOAD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "lmdbio/base/status.h"
#include "lmdbio/file/writer/database_writer.h"
#include "tools/cli/cli.h"
#include "tools/cli/progress_bar.h"

namespace lmdbio::tools {

// Describes the options of every load: --single-file, --commit-interval, --append, --no-provenance.
void DescribeDatabase(po::options_description_easy_init& options,
                      uint64_t default_commit_interval_records);

// The writer options for the database at `path`, from the options above.
file::WriterOptions DatabaseOptions(const Invocation& invocation, const std::string& path);

// A writer with a progress bar. It stops at the user's request.
class DatabaseLoad {
 public:
  // expected_count  number of records, for the progress bar; 0 if unknown
  // Errors: as DatabaseWriter::Create
  static Result<DatabaseLoad> Create(file::WriterOptions options, uint64_t expected_count);

  // Errors: as DatabaseWriter::Put; kResourceExhausted if the user has asked to stop
  Status Put(std::string_view key, Bytes value);
  Status Put(std::string_view key, std::string_view value) {
    return Put(key, std::as_bytes(std::span(value)));
  }

  // Returns: the outcome, for Invocation::Report
  // Errors:  as DatabaseWriter::Finish
  Result<nlohmann::ordered_json> Finish();

 private:
  DatabaseLoad(std::unique_ptr<ProgressBar> bar, file::DatabaseWriter writer,
               uint64_t expected_count);

  std::unique_ptr<ProgressBar> bar_;  // outlives the writer, which reports to it
  file::DatabaseWriter writer_;
  uint64_t expected_count_;
  uint64_t put_count_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace lmdbio::tools
#endif  // LMDBIO_TOOLS_MAKE_DATABASE_LOAD_H_
