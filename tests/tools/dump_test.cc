// Goal: lmdbio-dump prints the same bytes as mdb_dump for every file of LMDB. Method: the catalogue
// of fixtures. The oracle is the system's mdb_dump; for files of version 3 it is the stored output
// of the mdb_dump of LMDB 1.0.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tests/fixtures/dump_oracle.h"
#include "tests/fixtures/lmdb_error.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/program.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

// The operands of both programs: the directory, or a single file with -n for mdb_dump.
struct DumpedFile {
  explicit DumpedFile(const fs::path& data_file) : path(data_file) {
    if (data_file.filename() == "data.mdb") {
      path = data_file.parent_path();
    } else {
      mdb_options = {"-n"};
    }
  }

  fs::path path;
  std::vector<std::string> mdb_options;
};

std::string MdbDump(const DumpedFile& operand, std::vector<std::string> options) {
  options.insert(options.begin(), "mdb_dump");
  options.insert(options.end(), operand.mdb_options.begin(), operand.mdb_options.end());
  options.push_back(operand.path.string());
  return RunCommand(options).output;
}

std::string LmdbioDump(const DumpedFile& operand, const std::vector<std::string>& options) {
  const CommandResult result = Run(DumpProgram(), operand.path, options);
  INFO(result.errors);
  REQUIRE(result.exit_code == 0);
  REQUIRE(result.errors.empty());
  return result.output;
}

// Compares dumps. Prints only the first difference, because dumps have megabytes.
void CheckEqual(const std::string& dump, const std::string& expected) {
  if (dump == expected) return;
  const auto [differs, end] = std::ranges::mismatch(dump, expected);
  const auto offset = static_cast<size_t>(differs - dump.begin());
  FAIL("differs from byte " << offset << ": " << dump.substr(offset, 80)
                            << "\nwhere it should be: " << expected.substr(offset, 80));
}

int DigitOf(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

// Converts a line of a dump from format=bytevalue to format=print.
std::string PrintableLine(std::string_view line, std::string_view backslash) {
  std::string text = " ";
  for (size_t i = 1; i + 2 < line.size(); i += 2) {
    const int byte = 16 * DigitOf(line[i]) + DigitOf(line[i + 1]);
    if (byte == '\\') {
      text += backslash;
    } else if (byte >= 0x20 && byte <= 0x7e) {
      text += static_cast<char>(byte);
    } else {
      text += '\\';
      text += line.substr(i, 2);
    }
  }
  return text + '\n';
}

// Converts a whole dump.
std::string Printable(std::string_view dump, std::string_view backslash) {
  std::string text;
  while (!dump.empty()) {
    const std::string_view line = dump.substr(0, dump.find('\n') + 1);
    dump.remove_prefix(line.size());
    if (line.starts_with(' ')) {
      text += PrintableLine(line, backslash);
    } else {
      text += line == "format=bytevalue\n" ? "format=print\n" : line;
    }
  }
  return text;
}

// mdb_dump before 0.9.25 does not double a backslash, so its output is ambiguous.
void CheckPrintable(const DumpedFile& operand) {
  const std::string hex = MdbDump(operand, {});
  const std::string expected = Printable(hex, "\\\\");
  const std::string theirs = MdbDump(operand, {"-p"});
  REQUIRE((theirs == expected || theirs == Printable(hex, "\\")));
  CheckEqual(LmdbioDump(operand, {"-p"}), expected);
}

void CheckAll(const DumpedFile& operand, const Fixture& fixture) {
  if (!fixture.database_names.empty()) {
    CheckEqual(LmdbioDump(operand, {"-a"}), MdbDump(operand, {"-a"}));
    return;
  }
  const CommandResult none = Run(DumpProgram(), operand.path, {"-a"});
  CHECK(FlawOfFailure(none, DumpProgram(), operand.path.string() + ": ") == "");
}

TEST_CASE("lmdbio-dump equals mdb_dump", "[tools][conformance]") {
  for (const FixtureSpec& spec : FixtureCatalogue(FixtureScale::kSmall)) {
    if (spec.bulk == FixtureBulk::kHuge) continue;
    const TempDir dir;
    const Fixture fixture = WriteFixture(spec, dir.path());
    const DumpedFile operand(fixture.data_file);
    INFO("fixture " << spec.name);
    CheckEqual(LmdbioDump(operand, {}), MdbDump(operand, {}));
    CheckPrintable(operand);
    CheckAll(operand, fixture);
    for (const std::string& name : fixture.database_names) {
      INFO("database " << name);
      CheckEqual(LmdbioDump(operand, {"-s", name}), MdbDump(operand, {"-s", name}));
    }
  }
}

TEST_CASE("lmdbio-dump equals mdb_dump for a file beyond 4 GiB", "[tools][conformance]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("behind-4-gib"), dir.path());
  REQUIRE(std::filesystem::file_size(fixture.data_file) > uint64_t{1} << 32);
  const DumpedFile operand(fixture.data_file);
  const std::string dump = LmdbioDump(operand, {});
  CHECK(std::ranges::count(dump, '\n') > 4000);
  CheckEqual(dump, MdbDump(operand, {}));
  CheckPrintable(operand);
}

TEST_CASE("lmdbio-dump equals mdb_dump of LMDB 1.0", "[tools][conformance]") {
  for (const std::string& name : V3FixtureNames()) {
    const TempDir dir;
    const DumpedFile operand(dir.path() / "file");
    WriteWholeFile(operand.path, V3FixtureBytes(name));
    INFO("fixture " << name);
    const std::string expected = V3FixtureText(name, "dump");
    CheckEqual(LmdbioDump(operand, {}), expected);
    CheckEqual(LmdbioDump(operand, {"-p"}), Printable(expected, "\\\\"));
    const std::string named = V3FixtureText(name, "dump-a");
    if (named.empty()) continue;
    CheckEqual(LmdbioDump(operand, {"-a"}), named);
    std::string one_by_one;
    for (const DumpedDatabase& database : ParseDump(named)) {
      one_by_one += LmdbioDump(operand, {"-s", database.name});
    }
    CheckEqual(one_by_one, named);
  }
}

struct CloseEnvironment {
  void operator()(MDB_env* environment) const { mdb_env_close(environment); }
};

// Writes an environment with `reader_count` reader slots.
void WriteWithReaders(const fs::path& path, unsigned flags, unsigned reader_count) {
  MDB_env* created = nullptr;
  ThrowUnlessOk(mdb_env_create(&created), "mdb_env_create");
  const std::unique_ptr<MDB_env, CloseEnvironment> environment(created);
  ThrowUnlessOk(mdb_env_set_maxreaders(created, reader_count), "mdb_env_set_maxreaders");
  ThrowUnlessOk(mdb_env_open(created, path.c_str(), flags, 0644), "mdb_env_open");
}

TEST_CASE("lmdbio-dump finds the number of readers without the lock", "[tools]") {
  const TempDir dir;
  const unsigned reader_count = GENERATE(1U, 126U, 127U, 500U);
  const bool is_single_file = GENERATE(false, true);
  INFO(reader_count << " readers, single file: " << is_single_file);
  const fs::path data_file = dir.path() / (is_single_file ? "single" : "data.mdb");
  const DumpedFile operand(data_file);
  WriteWithReaders(operand.path, is_single_file ? MDB_NOSUBDIR : 0, reader_count);
  const fs::path lock_file = dir.path() / (is_single_file ? "single-lock" : "lock.mdb");

  const std::string before = LmdbioDump(operand, {});
  CheckEqual(before, MdbDump(operand, {}));
  fs::remove(lock_file);
  const std::string without = LmdbioDump(operand, {});
  CHECK_FALSE(fs::exists(lock_file));
  CheckEqual(without, MdbDump(operand, {}));
}

TEST_CASE("lmdbio-dump prints the address of a fixed map", "[tools]") {
  const TempDir dir;
  TinyDb(dir.path(), {.environment_flags = MDB_FIXEDMAP, .map_bytes = 1 << 20}).Put("k", "v");
  const DumpedFile operand(dir.path() / "data.mdb");
  const std::string dump = LmdbioDump(operand, {});
  CHECK(dump.find("\nmapaddr=0x") != std::string::npos);
  CheckEqual(dump, MdbDump(operand, {}));
}

TEST_CASE("mdb_load reads the output of lmdbio-dump -p", "[tools]") {
  const TempDir dir;
  std::string every_byte;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte != '\\') every_byte += static_cast<char>(byte);  // mdb_load before 0.9.25 spoils it
  }
  fs::create_directories(dir.path() / "from");
  fs::create_directories(dir.path() / "to");
  TinyDb(dir.path() / "from").Put("every byte", every_byte).Put("none", "").Commit();
  const fs::path dump = dir.path() / "dump";
  WriteWholeFile(dump, AsBytes(LmdbioDump(DumpedFile(dir.path() / "from/data.mdb"), {"-p"})));

  const CommandResult loaded =
      RunCommand({"mdb_load", "-f", dump.string(), (dir.path() / "to").string()});

  INFO(loaded.errors);
  REQUIRE(loaded.exit_code == 0);
  CHECK(LmdbRecords(dir.path() / "to/data.mdb") == LmdbRecords(dir.path() / "from/data.mdb"));
}

// Values with texts around the size of the program's buffer, and many times larger.
TEST_CASE("lmdbio-dump prints values of every size around its buffer", "[tools]") {
  const TempDir dir;
  TinyDb db(dir.path());
  Random random(3);
  for (const uint64_t size_bytes : {349'000U, 349'523U, 349'524U, 349'525U, 349'526U, 524'288U,
                                    1'048'575U, 1'048'576U, 1'048'577U, 5'000'000U}) {
    db.Put(fmt::format("{:08}", size_bytes), random.BytesOf(size_bytes));
  }
  db.Commit();
  const DumpedFile operand(db.data_file());
  CheckEqual(LmdbioDump(operand, {}), MdbDump(operand, {}));
  CheckPrintable(operand);
}

TEST_CASE("lmdbio-dump names a missing database", "[tools]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Put("record", "value").Use("there").Put("k", "v").Commit();
  for (const std::string name : {"nowhere", "", "record"}) {
    const CommandResult result = Run(DumpProgram(), dir.path(), {"-s", name});
    CHECK(FlawOfFailure(result, DumpProgram(),
                        db.data_file().string() + ": database '" + name + "': ") == "");
  }
}

// The lines of records in a dump.
std::string RecordsOf(const std::string& dump) {
  const size_t begin = dump.find("HEADER=END\n") + 11;
  return dump.substr(begin, dump.rfind("DATA=END") - begin);
}

TEST_CASE("lmdbio-dump --key prints the records of keys", "[tools]") {
  const TempDir dir;
  TinyDb db(dir.path());
  for (int i = 0; i < 3000; ++i) db.Put(fmt::format("{:05}", i), fmt::format("value {}", i));
  db.Put(std::string("a\\b\0c", 5), "odd");
  db.Use("more", MDB_DUPSORT).Put("k", "1").Put("k", "2").Put("kk", "3").Commit();
  const DumpedFile operand(db.data_file());
  const std::string two = LmdbioDump(operand, {"-p", "-k", "00007", "--key", "02999"});
  CHECK(RecordsOf(two) == " 00007\n value 7\n 02999\n value 2999\n");
  const std::string whole = LmdbioDump(operand, {"-p"});
  CHECK(two.substr(0, two.find("HEADER=END")) == whole.substr(0, whole.find("HEADER=END")));
  CHECK(two.ends_with("DATA=END\n"));
  CHECK(RecordsOf(LmdbioDump(operand, {"-p", "-k", "a\\\\b\\00c"})) == " a\\\\b\\00c\n odd\n");
  CHECK(RecordsOf(LmdbioDump(operand, {"-p", "-s", "more", "-k", "k"})) == " k\n 1\n k\n 2\n");
}

TEST_CASE("lmdbio-dump --key names an absent key, and a wrong notation", "[tools]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Put("record", "value").Commit();
  for (const std::string key : {"recor", "record!", "a"}) {
    const CommandResult result = Run(DumpProgram(), dir.path(), {"-k", key});
    CHECK(FlawOfFailure(result, DumpProgram(), db.data_file().string() + ": has no key " + key) ==
          "");
  }
  for (const std::string key : {"\\", "\\0", "\\0g", "a\\x00"}) {
    const CommandResult result = Run(DumpProgram(), dir.path(), {"-k", key});
    CHECK(result.exit_code != 0);
    CHECK(result.errors.find("two hexadecimal digits") != std::string::npos);
  }
  CHECK(Run(DumpProgram(), dir.path(), {"-a", "-k", "x"}).exit_code != 0);
}

}  // namespace
}  // namespace lmdbio::test
