// Many files as one, for records by number and by key: each result is that of the single file with
// the same records, which liblmdb reads.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/file/writer/record_provenance.h"
#include "lmdbio/load/records/record_reader.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/load/loader/split_records.h"
#include "tests/support/catch.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::load {
namespace {

using test::AsBytes;
using test::AsText;
using test::Good;
using test::KeyValue;
using test::SplitRecords;
using test::ValueKind;

void CheckRead(const RecordReader& reader, const std::vector<KeyValue>& records,
               const std::vector<uint64_t>& numbers) {
  const auto read = reader.Read(numbers);
  if (!read) FAIL(read.error().message());
  REQUIRE(read->size() == numbers.size());
  size_t wrong = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const KeyValue& expected = records[numbers[i]];
    const RecordView& found = (*read)[i];
    if (AsText(found.key) != expected.first || AsText(found.value) != expected.second) ++wrong;
  }
  REQUIRE(wrong == 0);
}

void CheckAnyReads(const RecordReader& reader, const std::vector<KeyValue>& records) {
  REQUIRE(reader.record_count() == records.size());
  std::vector<uint64_t> all(records.size());
  std::iota(all.begin(), all.end(), 0);
  CheckRead(reader, records, all);
  test::Random random(5);
  for (int round = 0; round < 10; ++round) {
    std::vector<uint64_t> some(random.Below(60) + 1);
    for (uint64_t& number : some) number = random.Below(records.size());
    CheckRead(reader, records, some);
  }
}

std::string ErrorOf(const std::vector<DatabasePath>& list, const RecordReaderOptions& options,
                    ErrorCode code) {
  const auto opened = RecordReader::Open(list, options);
  REQUIRE(!opened);
  CHECK(opened.error().code() == code);
  return opened.error().message();
}

TEST_CASE("RecordReader reads many files as the single file", "[records][many-files]") {
  const auto kind =
      GENERATE(ValueKind::kInline, ValueKind::kOverflow, ValueKind::kMixed, ValueKind::kDuplicates);
  const size_t count = GENERATE(1, 3, 40);
  const SplitRecords split(count, kind, 240);
  for (const file::EngineKind engine : {file::EngineKind::kUring, file::EngineKind::kPread}) {
    for (const file::CachePolicy cache :
         {file::CachePolicy::kBuffered, file::CachePolicy::kDirect, file::CachePolicy::kMixed}) {
      for (const uint64_t open_files_max : {0, 2, 5}) {
        INFO(count << " files, " << file::EngineKindName(engine) << ", "
                   << file::CachePolicyName(cache) << ", " << open_files_max << " descriptors");
        RecordReaderOptions options;
        options.engine = engine;
        options.cache = cache;
        options.block_bytes = 8192;
        options.open_files_max = open_files_max;
        const auto reader = Good(RecordReader::Open(split.list(), options));
        CheckAnyReads(*reader, split.records());
      }
    }
  }
}

TEST_CASE("RecordReader takes a folder and a glob in natural order", "[records][many-files]") {
  const SplitRecords split(12, ValueKind::kMixed, 200);
  // None of these is a data file.
  test::WriteWholeFile(split.folder() / "labels.json", AsBytes("{}"));
  test::WriteWholeFile(split.folder() / "lock.mdb", AsBytes("-"));
  test::WriteWholeFile(split.folder() / "data.0.mdb.prov", AsBytes("-"));
  for (const std::string& path : {split.folder().string(), (split.folder() / "data.*").string(),
                                  (split.folder() / "data.[0-9]*.mdb").string()}) {
    INFO(path);
    const auto reader = Good(RecordReader::Open(path, {}));
    CheckAnyReads(*reader, split.records());
  }
  const std::string pattern = split.folder() / "other.*";
  const auto nothing = RecordReader::Open(pattern, {});
  REQUIRE(!nothing);
  CHECK(nothing.error().code() == ErrorCode::kNotFound);
  CHECK(nothing.error().message() == pattern + ": no file matches");
}

TEST_CASE("RecordReader finds the keys of many files", "[records][many-files]") {
  const auto kind = GENERATE(ValueKind::kMixed, ValueKind::kDuplicates);
  const SplitRecords split(7, kind, 210);
  const std::vector<KeyValue>& records = split.records();
  const auto reader = Good(RecordReader::Open(split.list(), {}));
  std::vector<std::string> keys = {"absent", ""};
  for (uint64_t i = 0; i < records.size(); i += 3) keys.push_back(records[i].first);
  std::ranges::reverse(keys);
  std::vector<Bytes> wanted;
  for (const std::string& key : keys) wanted.push_back(AsBytes(key));
  for (const bool has_index : {false, true}) {
    INFO("with an index: " << has_index);
    if (has_index) REQUIRE(reader->UseKeyIndex());
    const std::vector<KeyNumber> numbers = Good(reader->Find(wanted));
    const std::vector<uint64_t> counts = Good(reader->CountValues(wanted));
    const RecordSet found = Good(reader->Get(wanted));
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto same = [&](const KeyValue& record) { return record.first == keys[i]; };
      const auto first = std::ranges::find_if(records, same);
      const auto count = static_cast<uint64_t>(std::ranges::count_if(records, same));
      REQUIRE(counts[i] == count);
      REQUIRE(numbers[i].value_count == count);
      REQUIRE(found[i].is_found() == (count > 0));
      if (count == 0) continue;
      REQUIRE(numbers[i].first == static_cast<uint64_t>(first - records.begin()));
      REQUIRE(AsText(found[i].value) == first->second);
    }
  }
  const uint64_t count = records.size() - 2;
  const KeyList list = Good(reader->ReadKeys(1, count));
  REQUIRE(list.size() == count);
  for (uint64_t i = 0; i < count; ++i) REQUIRE(AsText(list[i]) == records[i + 1].first);
}

TEST_CASE("The first file with a key answers, and a file may come twice", "[records][many-files]") {
  const test::TempDir dir;
  const auto make = [&](const char* name, const char* value) {
    const test::TinyDbOptions one_file{.environment_flags = MDB_NOSUBDIR};
    test::TinyDb(dir.path() / name, one_file).Put("key", value).Put(name, value).Commit();
    return DatabasePath{dir.path() / name, ""};
  };
  const DatabasePath a = make("a", "of a");
  const DatabasePath b = make("b", "of b");
  const auto reader = Good(RecordReader::Open({b, a, b}, {}));
  REQUIRE(reader->record_count() == 6);
  const std::vector<Bytes> keys = {AsBytes("key"), AsBytes("a"), AsBytes("c")};
  const RecordSet found = Good(reader->Get(keys));
  CHECK(AsText(found[0].value) == "of b");
  CHECK(AsText(found[1].value) == "of a");
  CHECK(!found[2].is_found());
  const std::vector<KeyNumber> numbers = Good(reader->Find(keys));
  CHECK(numbers[0].first == 1);  // "b" comes before "key"
  CHECK(numbers[1].first == 2);
  const std::vector<uint64_t> first_of_each = {0, 2, 4};
  const RecordSet records = Good(reader->Read(first_of_each));
  CHECK(AsText(records[0].value) == "of b");
  CHECK(AsText(records[1].value) == "of a");
  CHECK(AsText(records[2].value) == "of b");
}

TEST_CASE("A list takes named databases of one file", "[records][many-files]") {
  const test::TempDir dir;
  test::TinyDb db(dir.path());
  db.Use("train").Put("a", "1").Put("b", "2").Use("test").Put("a", "3").Commit();
  const auto reader = Good(RecordReader::Open({{dir.path(), "test"}, {dir.path(), "train"}}, {}));
  CheckAnyReads(*reader, {{"a", "3"}, {"a", "1"}, {"b", "2"}});
}

TEST_CASE("A list uses provenance and kept layouts where they are", "[records][many-files]") {
  const SplitRecords split(5, ValueKind::kInline, 9000);
  for (const size_t i : {1, 4}) {
    file::RecordProvenanceOptions options;
    options.path = split.file(i);
    REQUIRE(file::RecordProvenance(options));
  }
  const test::TempDir cache;
  RecordReaderOptions options;
  options.layout_cache = cache.path();
  for (int round = 0; round < 2; ++round) {
    const auto reader = Good(RecordReader::Open(split.list(), options));
    CheckAnyReads(*reader, split.records());
    CHECK(reader->TakeNotes().empty());
  }
}

TEST_CASE("2,000 files need 256 descriptors", "[records][many-files]") {
  const SplitRecords split(10, ValueKind::kMixed, 60);
  const test::TempDir dir;
  const std::vector<KeyValue> records = split.CopyTo(dir.path(), 2000);
  const test::DescriptorLimit limit(256);
  for (const file::CachePolicy policy :
       {file::CachePolicy::kBuffered, file::CachePolicy::kDirect}) {
    RecordReaderOptions options;
    options.cache = policy;
    const auto reader = Good(RecordReader::Open(dir.path().string(), options));
    CheckAnyReads(*reader, records);
    std::vector<std::jthread> threads;
    std::atomic<int> wrong = 0;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&, seed] {
        test::Random random(seed);
        for (int round = 0; round < 10; ++round) {
          std::vector<uint64_t> some(100);
          for (uint64_t& number : some) number = random.Below(records.size());
          const auto read = reader->Read(some);
          if (!read) {
            ++wrong;
            continue;
          }
          for (size_t i = 0; i < some.size(); ++i) {
            if (AsText((*read)[i].value) != records[some[i]].second) ++wrong;
          }
        }
      });
    }
    threads.clear();
    CHECK(wrong == 0);
  }
}

TEST_CASE("Many threads share few descriptors", "[records][many-files]") {
  const SplitRecords split(60, ValueKind::kMixed, 300);
  for (const file::EngineKind engine : {file::EngineKind::kUring, file::EngineKind::kPread}) {
    for (const file::CachePolicy cache :
         {file::CachePolicy::kBuffered, file::CachePolicy::kDirect, file::CachePolicy::kMixed}) {
      RecordReaderOptions options;
      options.engine = engine;
      options.cache = cache;
      options.open_files_max = 3;
      const auto reader = Good(RecordReader::Open(split.list(), options));
      std::atomic<int> wrong = 0;
      std::vector<std::jthread> threads;
      for (uint64_t seed = 0; seed < 8; ++seed) {
        threads.emplace_back([&, seed] {
          test::Random random(seed);
          for (int round = 0; round < 10; ++round) {
            std::vector<uint64_t> some(60);
            for (uint64_t& number : some) number = random.Below(split.records().size());
            const auto read = reader->Read(some);
            if (!read) ++wrong;
            for (size_t i = 0; read && i < some.size(); ++i) {
              if (AsText((*read)[i].value) != split.records()[some[i]].second) ++wrong;
            }
          }
        });
      }
      threads.clear();
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("Files that are not alike are refused by name", "[records][many-files]") {
  const test::TempDir dir;
  const auto make = [&](const char* name, uint32_t page_bytes, unsigned flags) {
    const test::TinyDbOptions options{.page_size_bytes = page_bytes,
                                      .environment_flags = MDB_NOSUBDIR};
    test::TinyDb(dir.path() / name, options).Use("", flags).Put("12345678", "v").Commit();
    return DatabasePath{dir.path() / name, ""};
  };
  const DatabasePath plain = make("plain", 4096, 0);
  const DatabasePath large = make("large", 8192, 0);
  const DatabasePath duplicates = make("duplicates", 4096, MDB_DUPSORT);
  const DatabasePath integers = make("integers", 4096, MDB_INTEGERKEY);
  const auto alike = ErrorCode::kInvalidArgument;
  CHECK(ErrorOf({plain, large}, {}, alike) ==
        fmt::format("{}: has a page size of 8192, but {} has 4096; the files of a list must be "
                    "alike",
                    large.path, plain.path));
  for (const auto& list : {std::vector{plain, duplicates}, std::vector{duplicates, plain}}) {
    CHECK(ErrorOf(list, {}, alike) ==
          fmt::format("{}: has duplicates (MDB_DUPSORT), but {} has not; the files of a list must "
                      "be alike",
                      duplicates.path, plain.path));
  }
  CHECK(ErrorOf({plain, integers}, {}, alike) ==
        fmt::format("{}: has database flags 8, but {} has 0; the files of a list must be alike",
                    integers.path, plain.path));
  CHECK(ErrorOf({}, {}, alike) == "the list of files is empty");
}

TEST_CASE("What a list cannot do is refused by name", "[records][many-files]") {
  const SplitRecords split(3, ValueKind::kInline, 30);
  std::vector<DatabasePath> list = split.list();
  RecordReaderOptions pinned;
  pinned.snapshot = SnapshotMode::kPinned;
  CHECK(ErrorOf(list, pinned, ErrorCode::kUnsupported) ==
        list[0].path +
            " and 2 more files: snapshot pinned holds a file open, and a list has many; "
            "use immutable or optimistic");
  RecordReaderOptions mapped;
  mapped.engine = file::EngineKind::kMmap;
  CHECK(ErrorOf(list, mapped, ErrorCode::kUnsupported) ==
        list[0].path + " and 2 more files: engine mmap maps one file; use uring or pread");
  list[1].path = split.folder() / "absent.mdb";
  CHECK(ErrorOf(list, {}, ErrorCode::kNotFound) ==
        list[1].path + ": cannot be opened: No such file or directory");
  test::WriteWholeFile(list[1].path, AsBytes("no database"));
  CHECK(ErrorOf(list, {}, ErrorCode::kCorruption).starts_with(list[1].path + ": "));
}

TEST_CASE("Damage is reported with its own file and page", "[records][many-files]") {
  const SplitRecords split(5, ValueKind::kOverflow, 100);
  // The first page of a value: its number is wrong from now on.
  std::vector<std::byte> bytes = test::ReadWholeFile(split.file(3));
  const std::string value = split.records()[65].second;
  const auto at =
      std::search(bytes.begin(), bytes.end(), AsBytes(value).begin(), AsBytes(value).end());
  REQUIRE(at != bytes.end());
  const auto page = static_cast<uint64_t>(at - bytes.begin()) / 4096;
  bytes[page * 4096] ^= std::byte{1};
  test::WriteWholeFile(split.file(3), bytes);
  const auto reader = Good(RecordReader::Open(split.list(), {}));
  const std::vector<uint64_t> damaged = {3, 65, 99};
  const auto read = reader->Read(damaged);
  REQUIRE(!read);
  CHECK(read.error().code() == ErrorCode::kCorruption);
  CHECK(read.error().message().starts_with(
      fmt::format("{}: page {}: ", split.file(3).string(), page)));
  CheckRead(*reader, split.records(), {64, 66, 99, 0});
}

TEST_CASE("A file that was replaced or cut while it was closed is noticed",
          "[records][many-files]") {
  const SplitRecords split(5, ValueKind::kOverflow, 100);
  RecordReaderOptions options;
  options.open_files_max = 2;
  const auto reader = Good(RecordReader::Open(split.list(), options));
  CheckAnyReads(*reader, split.records());
  const std::vector<uint64_t> of_second = {25, 30};
  const std::filesystem::path second = split.file(1);
  SECTION("replaced") {
    std::filesystem::copy_file(second, second.string() + ".new");
    std::filesystem::rename(second.string() + ".new", second);
  }
  SECTION("cut") { std::filesystem::resize_file(second, 8192); }
  SECTION("removed") { std::filesystem::remove(second); }
  const std::vector<uint64_t> others = {95, 45, 65};  // so that its descriptor is closed
  CheckRead(*reader, split.records(), others);
  const auto read = reader->Read(of_second);
  REQUIRE(!read);
  CHECK(read.error().message().starts_with(second.string() + ": "));
  CheckRead(*reader, split.records(), others);
}

}  // namespace
}  // namespace lmdbio::load
