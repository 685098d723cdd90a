// Checks the content of the fixtures. Every oracle is liblmdb or one of its tools.
#include <cstring>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>

#include <sys/stat.h>
#include <unistd.h>

#include "tests/fixtures/dump_oracle.h"
#include "tests/fixtures/forged_file.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/memory_source.h"
#include "tests/fixtures/page_size_override.h"
#include "tests/fixtures/tiny_db.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::test {
namespace {

template <typename T>
T LoadAt(Bytes bytes, uint64_t offset) {
  T value{};
  REQUIRE(offset + sizeof(value) <= bytes.size());
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// The page size in the first meta page of a version 1 file of this host.
uint32_t PageSizeOnDisk(const std::filesystem::path& data_file) {
  std::ifstream file(data_file, std::ios::binary);
  file.seekg(40);
  uint32_t page_size_bytes = 0;
  file.read(reinterpret_cast<char*>(&page_size_bytes), sizeof(page_size_bytes));
  REQUIRE(file.good());
  return page_size_bytes;
}

std::set<std::string> WithMain(std::set<std::string> names) {
  names.insert("");
  return names;
}

uint64_t CountOf(const Fixture& fixture, std::string_view database = "") {
  return LmdbStat(fixture.data_file, database).ms_entries;
}

}  // namespace

// Goal: liblmdb, with the true page size, finds the stated number of records in every fixture.
TEST_CASE("FixtureCatalogue writes files that liblmdb and mdb_stat read", "[support][fixtures]") {
  std::set<std::string> names;
  for (const FixtureSpec& spec : FixtureCatalogue(FixtureScale::kSmall)) {
    INFO(spec.name);
    CHECK(names.insert(spec.name).second);
    const TempDir dir;
    const Fixture fixture = WriteFixture(spec, dir.path());
    CHECK(PageSizeOnDisk(fixture.data_file) == fixture.page_size_bytes);
    for (const std::string& name : WithMain(fixture.database_names)) {
      INFO(name);
      uint64_t count = 0;
      LmdbScan(fixture.data_file, name, [&count](Bytes, Bytes) { ++count; });
      CHECK(count == CountOf(fixture, name));
    }
    const CommandResult stat = RunMdbStat(fixture.data_file);
    CHECK(stat.exit_code == 0);
    CHECK(stat.errors.empty());
    CHECK(stat.output.find("Page size: " + std::to_string(fixture.page_size_bytes)) !=
          std::string::npos);
  }
}

// Goal: the dump parser and the cursor scan give the same records.
TEST_CASE("ParseDump finds the records that LmdbRecords finds", "[support][fixtures]") {
  for (const char* name :
       {"boundaries", "dupfixed-main", "named", "odd-names", "page-512-dupsort"}) {
    INFO(name);
    const TempDir dir;
    const Fixture fixture = WriteFixture(FindFixture(name), dir.path());
    const CommandResult main_dump = RunMdbDump(fixture.data_file);
    REQUIRE(main_dump.exit_code == 0);
    const auto main_database = ParseDump(main_dump.output);
    REQUIRE(main_database.size() == 1);
    CHECK(main_database[0].records == LmdbRecords(fixture.data_file));
    for (const std::string& database : fixture.database_names) {
      const CommandResult dump = RunMdbDump(fixture.data_file, {"-s", database});
      REQUIRE(dump.exit_code == 0);
      const std::string_view data = std::string_view(dump.output).substr(dump.output.find("type="));
      const auto parsed = ParseDump(data);
      REQUIRE(parsed.size() == 1);
      CHECK(parsed[0].records == LmdbRecords(fixture.data_file, database));
    }
  }
}

TEST_CASE("ParseDump refuses an incomplete dump", "[support]") {
  CHECK_THROWS_AS(ParseDump("VERSION=3\n"), std::runtime_error);
  CHECK_THROWS_AS(ParseDump("HEADER=END\n 6b\n 76\n"), std::runtime_error);
  CHECK_THROWS_AS(ParseDump("HEADER=END\n 6x\n 76\nDATA=END\n"), std::runtime_error);
  CHECK(ParseDump("HEADER=END\n 6b\n \nDATA=END\n")[0].records == std::vector<KeyValue>{{"k", ""}});
}

// Goal: each fixture has the property in its name.
TEST_CASE("Fixtures have the properties in their names", "[support][fixtures]") {
  const auto write = [](const char* name, const TempDir& dir) {
    return WriteFixture(FindFixture(name), dir.path());
  };
  const TempDir dir;
  SECTION("counts") { CHECK(CountOf(write("ordered", dir)) == 100'000); }
  SECTION("fresh") {
    const Fixture fixture = write("fresh", dir);
    CHECK(CountOf(fixture) == 0);
    const auto bytes = ReadWholeFile(fixture.data_file);
    CHECK(LoadAt<uint64_t>(bytes, 144) == 0);
    CHECK(LoadAt<uint64_t>(bytes, fixture.page_size_bytes + 144U) == 0);
  }
  SECTION("emptied") {
    const Fixture fixture = write("emptied", dir);
    CHECK(CountOf(fixture) == 0);
    CHECK(LoadAt<uint64_t>(ReadWholeFile(fixture.data_file), 144) == 2);
  }
  SECTION("every key size") {
    std::set<size_t> sizes;
    for (const auto& [key, value] : LmdbRecords(write("key-sizes", dir).data_file)) {
      sizes.insert(key.size());
    }
    CHECK(sizes.size() == 511);
  }
  SECTION("free pages") {
    const CommandResult stat = RunMdbStat(write("updated", dir).data_file, {"-f"});
    CHECK(stat.output.find("Free pages: 0\n") == std::string::npos);
  }
  SECTION("a compacted copy has none") {
    const CommandResult stat = RunMdbStat(write("compacted", dir).data_file, {"-f"});
    CHECK(stat.output.find("Free pages: 0\n") != std::string::npos);
  }
  SECTION("the length of a map") {
    CHECK(std::filesystem::file_size(write("writemap", dir).data_file) == 32U << 20);
  }
  SECTION("records beyond 4 GiB, little disk") {
    const Fixture fixture = write("beyond-4-gib", dir);
    CHECK(CountOf(fixture) == 2040);
    struct stat status {};
    REQUIRE(::stat(fixture.data_file.c_str(), &status) == 0);
    CHECK(status.st_blocks * 512 < 16 << 20);
    CHECK(std::filesystem::file_size(fixture.data_file) > uint64_t{1} << 32);
    // 40 values of 128 MiB were put first, so all later records lie behind 5 GiB.
    uint64_t huge_bytes = 0;
    LmdbScan(fixture.data_file, "", [&huge_bytes](Bytes key, Bytes value) {
      if (AsText(key).starts_with("a")) huge_bytes += value.size();
    });
    CHECK(huge_bytes == uint64_t{5} << 30);
  }
}

TEST_CASE("TinyDb puts, deletes, commits and aborts", "[support]") {
  const TempDir dir;
  {
    TinyDb db(dir.path());
    db.Put("a", "1").Put("b", "2").Put("c", "3").Delete("b").Commit();
    db.Put("lost", "").Abort();
    db.Use("tags", MDB_DUPSORT).Put("k", "x").Put("k", "y").Put("k", "z").Delete("k", "y").Commit();
    db.Put("never committed", "");
  }
  const std::filesystem::path file = dir.path() / "data.mdb";
  CHECK(LmdbRecords(file, "tags") == std::vector<KeyValue>{{"k", "x"}, {"k", "z"}});
  CHECK(LmdbFlags(file, "tags") == MDB_DUPSORT);
  CHECK(LmdbStat(file).ms_entries == 3);
  CHECK_THROWS_AS(LmdbRecords(file, "no such database"), std::runtime_error);
}

TEST_CASE("PageSizeOverride ends with its scope", "[support]") {
  const long truth = ::sysconf(_SC_PAGESIZE);
  {
    const PageSizeOverride scope(512);
    CHECK(::sysconf(_SC_PAGESIZE) == 512);
    CHECK(::sysconf(_SC_NPROCESSORS_CONF) >= 1);
  }
  CHECK(::sysconf(_SC_PAGESIZE) == truth);
}

// Goal: fixtures written twice hold the same records.
TEST_CASE("WriteFixture depends on the seed alone", "[support][fixtures]") {
  const TempDir dirs[3];
  FixtureSpec spec = FindFixture("dupsort-promoted");
  const auto first = LmdbRecords(WriteFixture(spec, dirs[0].path()).data_file);
  const auto second = LmdbRecords(WriteFixture(spec, dirs[1].path()).data_file);
  spec.seed = 2;
  const auto other = LmdbRecords(WriteFixture(spec, dirs[2].path()).data_file);
  CHECK(first == second);
  CHECK(first != other);
}

TEST_CASE("V3FixtureBytes are data version 3 and match their dumps", "[support][fixtures]") {
  REQUIRE(V3FixtureNames().size() >= 20);
  for (const std::string& name : V3FixtureNames()) {
    INFO(name);
    const std::vector<std::byte> bytes = V3FixtureBytes(name);
    CHECK(LoadAt<uint32_t>(bytes, 24) == 0xBEEFC0DE);
    CHECK(LoadAt<uint32_t>(bytes, 28) == 3);
    const uint32_t page_size_bytes = LoadAt<uint32_t>(bytes, 48);
    const bool second_is_newer =
        LoadAt<uint64_t>(bytes, page_size_bytes + 152U) > LoadAt<uint64_t>(bytes, 152);
    const uint64_t meta = second_is_newer ? page_size_bytes : 0;
    const auto dump = ParseDump(V3FixtureText(name, "dump"));
    REQUIRE(dump.size() == 1);
    CHECK(dump[0].records.size() == LoadAt<uint64_t>(bytes, meta + 96 + 32));
    CHECK(dump[0].headers.back() == "db_pagesize=" + std::to_string(page_size_bytes));
    CHECK(V3FixtureText(name, "stat").find("Environment Info") == 0);
  }
  CHECK(ParseDump(V3FixtureText("named", "dump-a")).size() == 5);
  CHECK_THROWS_AS(V3FixtureBytes("no such fixture"), std::runtime_error);
}

TEST_CASE("MemorySource counts, copies, and injects faults", "[support]") {
  std::vector<std::byte> content(100);
  content[40] = std::byte{7};
  MemorySource source(content);
  std::vector<std::byte> scratch(16);

  const Result<Bytes> read = source.Read({40, 8}, scratch);
  REQUIRE(read.has_value());
  CHECK(read->size() == 8);
  CHECK((*read)[0] == std::byte{7});
  CHECK(read->data() == scratch.data());
  CHECK(source.Read({96, 5}, scratch).error().code() == ErrorCode::kCorruption);
  CHECK(source.Read({~uint64_t{0}, 5}, scratch).error().code() == ErrorCode::kCorruption);
  CHECK(source.faults_delivered() == 0);

  source.FailNthRead(3);
  CHECK(source.Read({0, 1}, scratch).error().code() == ErrorCode::kIo);
  CHECK(source.Read({0, 1}, scratch).has_value());
  source.LatentTruncate(50);
  CHECK(*source.SizeBytes() == 100);
  CHECK(source.Read({45, 6}, scratch).error().code() == ErrorCode::kCorruption);
  CHECK(source.faults_delivered() == 2);
  CHECK(source.counters().request_count == 6);
  CHECK(source.counters().bytes == 9);
}

TEST_CASE("Forged files have the magic number at the offset of their kind", "[support]") {
  const TempDir dir;
  const auto native = ReadWholeFile(WriteFixture(FindFixture("one-record"), dir.path()).data_file);
  CHECK(LoadAt<uint32_t>(Forge32BitFile(4096), 12) == 0xBEEFC0DE);
  const auto swapped = ForgeOtherEndianFile(native);
  CHECK(LoadAt<uint32_t>(swapped, 16) == 0xDEC0EFBE);
  CHECK(LoadAt<uint32_t>(swapped, 4096 + 16) == 0xDEC0EFBE);
  CHECK(LoadAt<uint32_t>(swapped, 40) == 0x00100000);
  CHECK(LoadAt<uint32_t>(ForgeVersion(V3FixtureBytes("one-record"), 2), 28) == 2);
}

TEST_CASE("RunCommand returns output, errors and exit code", "[support]") {
  const CommandResult result = RunCommand({"sh", "-c", "printf 'a\\n'; printf b >&2; exit 3"});
  CHECK(result.output == "a\n");
  CHECK(result.errors == "b");
  CHECK(result.exit_code == 3);
  CHECK(RunCommand({"sh", "-c", "kill -9 $$"}).exit_code == 137);
  CHECK_THROWS_AS(RunCommand({"no-such-program-anywhere"}), std::runtime_error);
}

}  // namespace lmdbio::test
