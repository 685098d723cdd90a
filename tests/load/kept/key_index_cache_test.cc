// Goal: with a key index, keys have the records that they have without one: of a new index, of a
// kept one, of one with equal hashes. Nothing in the folder can make a lookup fail or find another
// record.
#include "lmdbio/load/kept/key_index_cache.h"

#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <lmdb.h>

#include "lmdbio/load/records/record_reader.h"
#include "tests/load/loader/databases.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

namespace fs = std::filesystem;

std::vector<Bytes> BytesOf(const std::vector<std::string>& keys) {
  std::vector<Bytes> bytes;
  for (const std::string& key : keys) bytes.push_back(std::as_bytes(std::span(key)));
  return bytes;
}

std::unique_ptr<RecordReader> Open(const test::ServedDatabase& database, const fs::path& folder) {
  RecordReaderOptions options;
  options.database_name = database.database_name;
  options.layout_cache = folder;
  auto reader = RecordReader::Open(database.data_file, options);
  if (!reader) FAIL(reader.error().message());
  return std::move(*reader);
}

void UseKeyIndex(RecordReader& reader) {
  const Status status = reader.UseKeyIndex();
  if (!status) FAIL(status.error().message());
}

// Every `step`-th key of the database, and as many that are absent.
std::vector<std::string> Keys(const test::ServedDatabase& database, size_t step) {
  std::vector<std::string> keys = {"", std::string(600, 'k')};
  for (size_t i = 0; i < database.records.size(); i += step) {
    keys.push_back(database.records[i].first);
    keys.push_back(database.records[i].first + "?");
  }
  return keys;
}

void CheckReader(const RecordReader& reader, const test::ServedDatabase& database,
                 size_t step = 1) {
  INFO(database.name);
  std::map<std::string, KeyNumber> numbers;
  for (uint64_t i = 0; i < database.records.size(); ++i) {
    KeyNumber& key = numbers[database.records[i].first];
    if (key.value_count++ == 0) key.first = i;
  }
  const std::vector<std::string> keys = Keys(database, step);
  const auto found = reader.Find(BytesOf(keys));
  const auto counts = reader.CountValues(BytesOf(keys));
  const auto records = reader.Get(BytesOf(keys));
  if (!found) FAIL(found.error().message());
  if (!records) FAIL(records.error().message());
  REQUIRE(counts);
  bool is_right = true;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto expected = numbers.find(keys[i]);
    const KeyNumber number = expected == numbers.end() ? KeyNumber{} : expected->second;
    const RecordView& record = (*records)[i];
    is_right &= (*found)[i] == number && (*counts)[i] == number.value_count;
    is_right &= record.is_found() == (number.value_count > 0);
    if (!record.is_found()) continue;
    const std::string& value = database.records[number.first].second;
    is_right &= std::ranges::equal(record.value, std::as_bytes(std::span(value)));
  }
  REQUIRE(is_right);
}

std::vector<fs::path> IndexesIn(const fs::path& folder) {
  std::vector<fs::path> files;
  if (!fs::exists(folder)) return files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".keys") files.push_back(entry.path());
  }
  return files;
}

TEST_CASE("A key index finds the records that a descent finds", "[records][key_index]") {
  test::ServedDatabases databases;
  for (const char* fixture : {"one-record", "boundaries", "random-order", "key-sizes",
                              "reverse-key", "dupsort-promoted", "dupfixed-main", "ordered"}) {
    databases.AddFixture(fixture);
  }
  const test::TempDir dir;
  for (const test::ServedDatabase& database : databases.all()) {
    fs::remove(database.data_file.string() + ".prov");
    for (const char* const turn : {"new", "kept", "kept again"}) {
      INFO(turn);
      const auto reader = Open(database, dir.path() / "cache");
      UseKeyIndex(*reader);
      UseKeyIndex(*reader);
      CheckReader(*reader, database);
      CHECK(reader->TakeNotes().empty());
    }
    const auto reader = Open(database, "off");
    UseKeyIndex(*reader);
    CheckReader(*reader, database);
  }
  CHECK(IndexesIn(dir.path() / "cache").size() >= 1);  // of the databases with many leaf pages
}

// Goal: the second job reads neither leaf pages nor anything else of the database for its index.
TEST_CASE("A kept key index is used, and one that does not fit is replaced",
          "[records][key_index]") {
  test::ServedDatabases databases;
  databases.AddFixture("ordered");
  const test::ServedDatabase& database = databases.all().front();
  const test::TempDir dir;
  const fs::path folder = dir.path() / "cache";
  UseKeyIndex(*Open(database, folder));
  REQUIRE(IndexesIn(folder).size() == 1);
  const fs::path index = IndexesIn(folder).front();
  const auto sound = test::ReadWholeFile(index);
  // 8 bytes a key, and less than 1 KiB of identity.
  CHECK(sound.size() < 8 * database.records.size() + 1024);

  const auto damage = [&](size_t at) {
    auto damaged = sound;
    damaged[at] ^= std::byte{1};
    test::WriteWholeFile(index, damaged);
  };
  for (const size_t at : {size_t{0}, size_t{8}, size_t{16}, size_t{24}, size_t{40}, size_t{100},
                          sound.size() / 2, sound.size() - 1}) {
    INFO("byte " << at);
    damage(at);
    const auto reader = Open(database, folder);
    UseKeyIndex(*reader);
    const std::vector<std::string> notes = reader->TakeNotes();
    REQUIRE(notes.size() == 1);
    CHECK_THAT(notes[0], ContainsSubstring("making a new key index") &&
                             ContainsSubstring(index.filename().string()));
    CheckReader(*reader, database, 101);
    CHECK(test::ReadWholeFile(index) == sound);
  }
  for (const size_t size : {size_t{0}, size_t{31}, size_t{200}, sound.size() - 8}) {
    fs::resize_file(index, size);
    const auto reader = Open(database, folder);
    UseKeyIndex(*reader);
    CheckReader(*reader, database, 101);
    CHECK(test::ReadWholeFile(index) == sound);
  }
}

TEST_CASE("A folder that cannot be written does not prevent a key index", "[records][key_index]") {
  test::ServedDatabases databases;
  databases.AddFixture("ordered");
  const test::ServedDatabase& database = databases.all().front();
  const test::TempDir dir;
  test::WriteWholeFile(dir.path() / "file", {});
  const auto reader = Open(database, dir.path() / "file" / "cache");
  UseKeyIndex(*reader);
  CheckReader(*reader, database);
  bool is_noted = false;
  for (const std::string& note : reader->TakeNotes()) {
    is_noted = is_noted || note.starts_with("the key index is not kept: ");
  }
  CHECK(is_noted);
}

TEST_CASE("Threads use a key index while it is made", "[records][key_index]") {
  test::ServedDatabases databases;
  databases.AddFixture("random-order");
  const test::ServedDatabase& database = databases.all().front();
  fs::remove(database.data_file.string() + ".prov");
  const auto reader = Open(database, "off");
  std::vector<std::thread> threads;
  std::vector<int> right(8);
  for (size_t i = 0; i < right.size(); ++i) {
    threads.emplace_back([&, i] {
      test::Random random(i);
      for (int round = 0; round < 20; ++round) {
        if (i < 2 && round == 5 && !reader->UseKeyIndex()) return;
        const uint64_t number = random.Below(database.records.size());
        const std::vector<std::string> keys = {database.records[number].first, "absent"};
        const auto found = reader->Find(BytesOf(keys));
        const auto records = reader->Get(BytesOf(keys));
        if (found && records && (*found)[0].first == number && (*found)[1].value_count == 0 &&
            (*records)[0].is_found() && !(*records)[1].is_found()) {
          ++right[i];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == std::vector<int>(8, 20));
}

// An index in which every key has the same hash bits: each lookup tries many records.
TEST_CASE("A collision of hashes is never another record", "[records][key_index]") {
  test::ServedDatabases databases;
  databases.AddFixture("boundaries");
  const test::ServedDatabase& database = databases.all().front();
  const auto reader = Open(database, "off");
  const std::string same = database.records[0].first;
  file::KeyIndexBuilder builder(database.records.size());
  for (uint64_t i = 0; i < database.records.size(); ++i) {
    builder.Add(std::as_bytes(std::span(same)), i);
  }
  const file::KeyIndex index = std::move(builder).Finish();
  CHECK(index.Candidates(std::as_bytes(std::span(same))).size() == database.records.size());
  RecordReaderOptions options;
  options.layout_cache = "off";
  const auto file = RecordFile::Open({{database.data_file, ""}}, options);
  REQUIRE(file);
  (*file)->keys().file(0).UseIndex(index);
  const std::vector<std::string> wanted = {same, same + "?"};
  const SortedKeys keys(file::KeyOrder::kLexical, BytesOf(wanted));
  const auto found = (*file)->keys().file(0).Find(keys);
  REQUIRE(found);
  CHECK((*found)[0] == KeyNumber{0, 1});
  CHECK((*found)[1] == KeyNumber{});
}

}  // namespace
}  // namespace lmdbio::load
