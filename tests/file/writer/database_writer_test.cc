#include "lmdbio/file/writer/database_writer.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;
using test::KeyValue;
using test::NamesIn;
using test::TempDir;

// Values in leaves and in overflow runs, keys in ascending order.
std::vector<KeyValue> SomeRecords(size_t count) {
  test::Random random(7);
  std::vector<KeyValue> records;
  for (size_t i = 0; i < count; ++i) {
    records.emplace_back("key" + std::to_string(100000 + i), random.BytesOf(random.Below(6000)));
  }
  return records;
}

WriterOptions OptionsFor(const fs::path& path) {
  WriterOptions options;
  options.path = path.string();
  options.provenance = ProvenanceMode::kSkip;
  return options;
}

Result<WriteSummary> Write(const WriterOptions& options, const std::vector<KeyValue>& records) {
  LMDBIO_TRY(DatabaseWriter writer, DatabaseWriter::Create(options));
  for (const auto& [key, value] : records) {
    LMDBIO_TRY_VOID(writer.Put(AsBytes(key), AsBytes(value)));
  }
  return writer.Finish();
}

// The pages behind the two meta pages, which differ in transaction numbers and the map size.
std::vector<std::byte> DataPages(const fs::path& data_file) {
  std::vector<std::byte> bytes = test::ReadWholeFile(data_file);
  const auto meta_bytes = static_cast<std::ptrdiff_t>(2 * test::LmdbStat(data_file).ms_psize);
  return {bytes.begin() + meta_bytes, bytes.end()};
}

// Goal: liblmdb finds the written records, in both shapes and both put modes.
TEST_CASE("liblmdb reads the records of DatabaseWriter", "[writer]") {
  const TempDir dir;
  const std::vector<KeyValue> records = SomeRecords(2500);
  WriterOptions options = OptionsFor(dir.path() / "db");
  options.shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  options.put_mode = GENERATE(PutMode::kDefault, PutMode::kAppend);
  options.durability = GENERATE(Durability::kAtFinish, Durability::kEachCommit);

  const Result<WriteSummary> summary = Write(options, records);

  REQUIRE(summary.has_value());
  const bool is_directory = options.shape == DatabaseShape::kDirectory;
  const fs::path data_file = dir.path() / (is_directory ? "db/data.mdb" : "db");
  CHECK(test::LmdbRecords(data_file) == records);
  CHECK(summary->record_count == 2500);
  CHECK(summary->transaction_count == 3);
  CHECK(summary->file_bytes == fs::file_size(data_file));
  uint64_t value_bytes = 0;
  for (const KeyValue& record : records) value_bytes += record.second.size();
  CHECK(summary->value_bytes == value_bytes);
  CHECK(summary->key_bytes == 2500 * 9);
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"db"});  // no lock, no working name
  if (is_directory) CHECK(NamesIn(dir.path() / "db") == std::set<std::string>{"data.mdb"});
}

// Goal: the flags of the writer change no page, so provenance describes plain liblmdb loads too.
TEST_CASE("DatabaseWriter writes the same pages as plain puts", "[writer]") {
  const TempDir dir;
  const std::vector<KeyValue> records = SomeRecords(2500);
  const uint64_t interval = GENERATE(as<uint64_t>{}, 0, 1, 7, 1000);
  WriterOptions options = OptionsFor(dir.path() / "ours");
  options.commit_interval_records = interval;
  fs::create_directory(dir.path() / "plain");
  test::TinyDb plain(dir.path() / "plain");
  for (size_t i = 0; i < records.size(); ++i) {
    plain.Put(records[i].first, records[i].second);
    if (interval != 0 && (i + 1) % interval == 0) plain.Commit();
  }
  plain.Commit();

  REQUIRE(Write(options, records).has_value());

  CHECK(DataPages(dir.path() / "ours/data.mdb") == DataPages(plain.data_file()));
}

// Goal: a map that starts small grows between transactions, and growing moves no record.
TEST_CASE("DatabaseWriter grows its map", "[writer]") {
  const TempDir dir;
  const std::vector<KeyValue> records = SomeRecords(2500);  // 7.5 MB
  WriterOptions options = OptionsFor(dir.path() / "small");
  options.commit_interval_records = 20;
  options.map_bytes = 1 << 20;
  REQUIRE(Write(options, records).has_value());

  options.path = (dir.path() / "large").string();
  options.map_bytes = 1 << 30;
  REQUIRE(Write(options, records).has_value());

  CHECK(DataPages(dir.path() / "small/data.mdb") == DataPages(dir.path() / "large/data.mdb"));
}

TEST_CASE("DatabaseWriter reports a transaction that does not fit the map", "[writer]") {
  const TempDir dir;
  WriterOptions options = OptionsFor(dir.path() / "db");
  options.commit_interval_records = 0;
  options.map_bytes = 1 << 20;

  const Result<WriteSummary> summary = Write(options, SomeRecords(2500));

  REQUIRE_FALSE(summary.has_value());
  CHECK(summary.error().code() == ErrorCode::kResourceExhausted);
  CHECK(summary.error().message().find("map of 1048576 bytes") != std::string::npos);
  CHECK(NamesIn(dir.path()).empty());
}

TEST_CASE("DatabaseWriter writes an empty database", "[writer]") {
  const TempDir dir;
  const Result<WriteSummary> summary = Write(OptionsFor(dir.path() / "db"), {});
  REQUIRE(summary.has_value());
  CHECK(summary->record_count == 0);
  CHECK(test::LmdbRecords(dir.path() / "db/data.mdb").empty());
}

TEST_CASE("DatabaseWriter takes keys of 1 to 511 bytes", "[writer]") {
  const TempDir dir;
  const size_t key_bytes = GENERATE(as<size_t>{}, 0, 1, 511, 512, 100000);
  const Result<WriteSummary> summary =
      Write(OptionsFor(dir.path() / "db"), {{std::string(key_bytes, 'k'), "value"}});
  INFO("key of " << key_bytes << " bytes");
  const bool is_good = key_bytes == 1 || key_bytes == 511;
  REQUIRE(summary.has_value() == is_good);
  if (is_good) return;
  CHECK(summary.error().code() == ErrorCode::kInvalidArgument);
  CHECK(summary.error().message().find("a key of " + std::to_string(key_bytes) + " bytes") !=
        std::string::npos);
  CHECK(NamesIn(dir.path()).empty());
}

TEST_CASE("DatabaseWriter refuses repeated keys and keys out of order", "[writer]") {
  const TempDir dir;
  WriterOptions options = OptionsFor(dir.path() / "db");
  SECTION("twice") {
    const auto summary = Write(options, {{"b", "1"}, {"a", "2"}, {"b", "3"}});
    REQUIRE_FALSE(summary.has_value());
    CHECK(summary.error().code() == ErrorCode::kInvalidArgument);
    CHECK(summary.error().message().find("record 2: its key was put before") != std::string::npos);
  }
  SECTION("not above the last, when appending") {
    options.put_mode = PutMode::kAppend;
    const auto summary = Write(options, {{"b", "1"}, {"a", "2"}});
    REQUIRE_FALSE(summary.has_value());
    CHECK(summary.error().code() == ErrorCode::kInvalidArgument);
    CHECK(summary.error().message().find("record 1: its key is not above") != std::string::npos);
  }
  CHECK(NamesIn(dir.path()).empty());
}

TEST_CASE("DatabaseWriter does not change an existing path", "[writer]") {
  const TempDir dir;
  const fs::path taken = dir.path() / "db";
  const DatabaseShape shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  WriterOptions options = OptionsFor(taken);
  options.shape = shape;
  SECTION("a directory") { fs::create_directory(taken); }
  SECTION("a file") { test::WriteWholeFile(taken, AsBytes("precious")); }
  SECTION("a link to nothing") { fs::create_symlink(dir.path() / "nothing", taken); }
  SECTION("with a slash behind") {
    fs::create_directory(taken);
    options.path += "/";
  }

  const Result<WriteSummary> summary = Write(options, {{"key", "value"}});

  REQUIRE_FALSE(summary.has_value());
  CHECK(summary.error().code() == ErrorCode::kInvalidArgument);
  CHECK(summary.error().message() == taken.string() + " exists; remove it or give another path");
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"db"});
  if (fs::is_regular_file(taken)) CHECK(test::ReadWholeTextFile(taken) == "precious");
}

TEST_CASE("DatabaseWriter does not remove another load's work", "[writer]") {
  const TempDir dir;
  Result<DatabaseWriter> other = DatabaseWriter::Create(OptionsFor(dir.path() / "db"));
  REQUIRE(other.has_value());
  REQUIRE(other->Put(AsBytes("first"), AsBytes("value")).has_value());

  const Result<WriteSummary> summary = Write(OptionsFor(dir.path() / "db"), {{"key", "value"}});

  REQUIRE_FALSE(summary.has_value());
  CHECK(summary.error().code() == ErrorCode::kInvalidArgument);
  CHECK(summary.error().message().find("db.lmdbio-partial exists") != std::string::npos);
  CHECK(fs::exists(dir.path() / "db.lmdbio-partial"));
  REQUIRE(other->Finish().has_value());
  CHECK(test::LmdbRecords(dir.path() / "db/data.mdb").size() == 1);
}

// Goal: a foreign file that appears during the load survives, and the working files are removed.
TEST_CASE("DatabaseWriter does not replace a file that appears during the load", "[writer]") {
  const TempDir dir;
  WriterOptions options = OptionsFor(dir.path() / "db");
  options.shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  Result<DatabaseWriter> writer = DatabaseWriter::Create(options);
  REQUIRE(writer.has_value());
  REQUIRE(writer->Put(AsBytes("key"), AsBytes("value")).has_value());
  test::WriteWholeFile(dir.path() / "db", AsBytes("precious"));

  const Result<WriteSummary> summary = writer->Finish();

  REQUIRE_FALSE(summary.has_value());
  CHECK(summary.error().code() == ErrorCode::kInvalidArgument);
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"db"});
  CHECK(test::ReadWholeTextFile(dir.path() / "db") == "precious");
}

TEST_CASE("DatabaseWriter removes an unfinished database", "[writer]") {
  const TempDir dir;
  {
    Result<DatabaseWriter> writer = DatabaseWriter::Create(OptionsFor(dir.path() / "db"));
    REQUIRE(writer.has_value());
    REQUIRE(writer->Put(AsBytes("key"), AsBytes("value")).has_value());
    DatabaseWriter moved = *std::move(writer);  // one owner removes the files, once
    CHECK(NamesIn(dir.path()) == std::set<std::string>{"db.lmdbio-partial"});
  }
  CHECK(NamesIn(dir.path()).empty());
}

TEST_CASE("DatabaseWriter refuses all calls after a failure and after Finish", "[writer]") {
  const TempDir dir;
  Result<DatabaseWriter> writer = DatabaseWriter::Create(OptionsFor(dir.path() / "db"));
  REQUIRE(writer.has_value());
  SECTION("failure") { CHECK_FALSE(writer->Put({}, {}).has_value()); }
  SECTION("end") { CHECK(writer->Finish().has_value()); }
  const Status put = writer->Put(AsBytes("key"), AsBytes("value"));
  REQUIRE_FALSE(put.has_value());
  CHECK(put.error().code() == ErrorCode::kInvalidArgument);
  CHECK_FALSE(writer->Finish().has_value());
}

TEST_CASE("DatabaseWriter names a path that cannot be created", "[writer]") {
  const TempDir dir;
  SECTION("no parent") {
    const auto writer = DatabaseWriter::Create(OptionsFor(dir.path() / "none/db"));
    REQUIRE_FALSE(writer.has_value());
    CHECK(writer.error().code() == ErrorCode::kNotFound);
    CHECK(writer.error().message().find(
              "none/db.lmdbio-partial: cannot be created: No such file") != std::string::npos);
  }
  SECTION("a parent that is a file") {
    test::WriteWholeFile(dir.path() / "file", {});
    const auto writer = DatabaseWriter::Create(OptionsFor(dir.path() / "file/db"));
    REQUIRE_FALSE(writer.has_value());
    CHECK(writer.error().code() == ErrorCode::kNotFound);
  }
  SECTION("no path") {
    const auto writer = DatabaseWriter::Create(OptionsFor(""));
    REQUIRE_FALSE(writer.has_value());
    CHECK(writer.error().code() == ErrorCode::kInvalidArgument);
  }
  SECTION("a map that is not a multiple of the page size") {
    WriterOptions options = OptionsFor(dir.path() / "db");
    options.map_bytes = (1 << 20) + 1;
    const auto writer = DatabaseWriter::Create(options);
    REQUIRE_FALSE(writer.has_value());
    CHECK(writer.error().code() == ErrorCode::kInvalidArgument);
    CHECK(NamesIn(dir.path()).empty());
  }
}

TEST_CASE("DatabaseWriter takes a smaller map where the address space is small", "[writer]") {
  const TempDir dir;
  WriterOptions options = OptionsFor(dir.path() / "db");
  options.map_bytes = uint64_t{1} << 60;
  const std::vector<KeyValue> records = SomeRecords(2500);

  REQUIRE(Write(options, records).has_value());

  CHECK(test::LmdbRecords(dir.path() / "db/data.mdb") == records);
}

TEST_CASE("DatabaseWriter records provenance beside the database", "[writer]") {
  const TempDir dir;
  WriterOptions options = OptionsFor(dir.path() / "db");
  options.provenance = ProvenanceMode::kRecord;
  options.commit_interval_records = GENERATE(as<uint64_t>{}, 0, 100);

  const Result<WriteSummary> summary = Write(options, SomeRecords(2500));

  REQUIRE(summary.has_value());
  REQUIRE(summary->provenance.has_value());
  CHECK(summary->provenance->record_count == 2500);
  CHECK(summary->provenance->kind == ProvenanceKind::kOrderedLoad);
  CHECK(summary->provenance->size_bytes == fs::file_size(summary->provenance->path));
}

}  // namespace
}  // namespace lmdbio::file
