// A program of its own, because SmallDisk may end it (exit code 77).
#include <filesystem>
#include <string>

#include "lmdbio/file/writer/database_writer.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/small_disk.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;

Result<WriteSummary> WriteTooMuch(const WriterOptions& options) {
  LMDBIO_TRY(DatabaseWriter writer, DatabaseWriter::Create(options));
  const std::string value(options.commit_interval_records == 1 ? 3000 : 300000, 'v');
  for (int i = 0; i < 5000; ++i) {
    LMDBIO_TRY_VOID(writer.Put(AsBytes(std::to_string(i)), AsBytes(value)));
  }
  return writer.Finish();
}

// Goal: the error code distinguishes a full disk from a broken one, also when liblmdb reports its
// short write as EIO; and all files are removed.
TEST_CASE("DatabaseWriter reports a full disk and removes its files", "[writer][fault]") {
  const test::SmallDisk disk(4 << 20);
  WriterOptions options;
  options.path = (disk.path() / "db").string();
  options.commit_interval_records = GENERATE(as<uint64_t>{}, 0, 1, 3, 10);
  options.shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  options.provenance = ProvenanceMode::kSkip;

  const Result<WriteSummary> summary = WriteTooMuch(options);

  REQUIRE_FALSE(summary.has_value());
  CHECK(summary.error().code() == ErrorCode::kResourceExhausted);
  CHECK(summary.error().message() == options.path + ": cannot be written: No space left on device");
  CHECK(fs::is_empty(disk.path()));
}

}  // namespace
}  // namespace lmdbio::file
