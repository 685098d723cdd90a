#include "tools/make/database_load.h"

#include <utility>

namespace lmdbio::tools {

void DescribeDatabase(po::options_description_easy_init& options,
                      uint64_t default_commit_interval_records) {
  options(
      "commit-interval",
      po::value<Whole>()->default_value(Whole{default_commit_interval_records})->value_name("N"),
      "number of records in one transaction; 0: all records");
  options("append", "put with MDB_APPEND, which fills pages completely");
  options("single-file", "write OUT as one file, not as a directory with a data.mdb");
  options("no-provenance", "write no provenance file");
}

file::WriterOptions DatabaseOptions(const Invocation& invocation, const std::string& path) {
  file::WriterOptions options;
  options.path = path;
  options.commit_interval_records = invocation.whole("commit-interval");
  if (invocation.has("append")) options.put_mode = file::PutMode::kAppend;
  if (invocation.has("single-file")) options.shape = file::DatabaseShape::kSingleFile;
  if (invocation.has("no-provenance")) options.provenance = file::ProvenanceMode::kSkip;
  return options;
}

DatabaseLoad::DatabaseLoad(std::unique_ptr<ProgressBar> bar, file::DatabaseWriter writer,
                           uint64_t expected_count)
    : bar_(std::move(bar)),
      writer_(std::move(writer)),
      expected_count_(expected_count),
      start_(std::chrono::steady_clock::now()) {}

Result<DatabaseLoad> DatabaseLoad::Create(file::WriterOptions options, uint64_t expected_count) {
  // From here on there are working files, which an interrupted load must remove.
  CatchStopSignals();
  auto bar = std::make_unique<ProgressBar>("loading records");
  // The writer keeps a pointer to the bar, so the bar lives on the heap: the load that owns both
  // may be moved.
  options.provenance_progress = [bar = bar.get()](double fraction) { bar->Update(fraction); };
  LMDBIO_TRY(file::DatabaseWriter writer, file::DatabaseWriter::Create(options));
  return DatabaseLoad(std::move(bar), std::move(writer), expected_count);
}

Status DatabaseLoad::Put(std::string_view key, Bytes value) {
  // The error ends the command, and the destructor of the writer removes the working files.
  if (StopRequested()) return Fail(ErrorCode::kResourceExhausted, "stopped by the user");
  if (expected_count_ != 0) {
    bar_->Update(static_cast<double>(put_count_) / static_cast<double>(expected_count_));
  }
  ++put_count_;
  return writer_.Put(std::as_bytes(std::span(key)), value);
}

Result<nlohmann::ordered_json> DatabaseLoad::Finish() {
  // The writer reports the second step through provenance_progress.
  bar_->set_label("recording provenance");
  LMDBIO_TRY(const file::WriteSummary summary, writer_.Finish());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  nlohmann::ordered_json outcome = {{"database", summary.path},
                                    {"records", summary.record_count},
                                    {"key_bytes", summary.key_bytes},
                                    {"value_bytes", summary.value_bytes},
                                    {"transactions", summary.transaction_count},
                                    {"file_bytes", summary.file_bytes}};
  if (summary.provenance) {
    const bool is_ordered = summary.provenance->kind == file::ProvenanceKind::kOrderedLoad;
    outcome["provenance"] = {{"file", summary.provenance->path},
                             {"kind", is_ordered ? "ordered load" : "exact layout"},
                             {"file_bytes", summary.provenance->size_bytes}};
  }
  outcome["seconds"] = static_cast<double>(static_cast<int64_t>(elapsed.count() * 1000)) / 1000;
  return outcome;
}

}  // namespace lmdbio::tools
