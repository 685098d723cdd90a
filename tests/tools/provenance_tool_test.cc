// Goal: lmdbio-provenance can show and verify the files that it creates. It refuses damaged files
// and files of another database with one line. A failed creation leaves no file.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/lmdb_oracle.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/program.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Creates, shows and verifies the provenance of one database. Returns the report of `create`.
ordered_json CheckRoundTrip(const fs::path& data_file, const std::string& name) {
  const std::vector<std::string> options =
      name.empty() ? std::vector<std::string>() : std::vector<std::string>{"-s", name};
  const ordered_json made = Report(ProvenanceProgram("create"), data_file, options);
  const fs::path file = made["provenance"].get<std::string>();
  const std::vector<std::byte> bytes = ReadWholeFile(file);
  CHECK(made["provenance_bytes"] == bytes.size());
  CHECK(made == Report(ProvenanceProgram("create"), data_file, options));
  CHECK((ReadWholeFile(file) == bytes));

  const ordered_json shown = Report(ProvenanceProgram("show"), data_file, options);
  CHECK(shown["fits"] == true);
  CHECK(shown["made_for"]["database"] == (name.empty() ? "main" : name));
  CHECK(shown["made_for"]["file_size_bytes"] == fs::file_size(data_file));
  const ordered_json verified = Report(ProvenanceProgram("verify"), data_file, options);
  for (const char* member : {"provenance", "kind", "provenance_bytes", "records"}) {
    INFO(member);
    CHECK(shown[member] == made[member]);
    CHECK(verified[member] == made[member]);
  }
  CHECK(verified["verified_records"] == made["records"]);
  CHECK(made["records"] == LmdbStat(data_file, name).ms_entries);
  return made;
}

TEST_CASE("lmdbio-provenance verifies the files that it creates", "[tools]") {
  struct Case {
    const char* fixture;
    const char* name;
    const char* kind;
  };
  const auto [fixture_name, name, kind] = GENERATE(values<Case>({
      {"ordered-overflow", "", "ordered load"},
      {"append", "", "ordered load"},
      {"random-order", "", "exact layout"},
      {"updated", "", "exact layout"},
      {"dupsort-promoted", "", "exact layout"},
      {"named", "", "exact layout"},
      {"named", "plain", "exact layout"},
      {"named", "dupfixed", "exact layout"},
      {"named", "empty", "exact layout"},
      {"odd-names", "back\\slash/slash", "exact layout"},
      {"odd-names", "tab\tnewline\n", "exact layout"},
      {"single-file", "", "exact layout"},
  }));
  INFO(fixture_name << " '" << name << "'");
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture(fixture_name), dir.path());
  const ordered_json made = CheckRoundTrip(fixture.data_file, name);
  CHECK(made["kind"] == kind);
}

// Commits every 1,000 or every 1,010 records may fall into the same leaf, and then leave the same
// pages for a while. The search must not take the first difference for the first commit.
TEST_CASE("lmdbio-provenance finds the commit interval of small records", "[tools]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("ordered"), dir.path());
  CHECK(CheckRoundTrip(fixture.data_file, "")["kind"] == "ordered load");
}

TEST_CASE("lmdbio-provenance uses the given commit interval", "[tools]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("ordered"), dir.path());
  const ordered_json told =
      Report(ProvenanceProgram("create"), fixture.data_file, {"--commit-interval", "1000"});
  CHECK(told["kind"] == "ordered load");
  const ordered_json shown = Report(ProvenanceProgram("show"), fixture.data_file);
  CHECK(shown["load"]["commit_interval_records"] == 1000);
  CHECK(Run(ProvenanceProgram("verify"), fixture.data_file).exit_code == 0);
}

TEST_CASE("lmdbio-provenance supports an empty database", "[tools]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture(GENERATE("fresh", "emptied")), dir.path());
  CHECK(CheckRoundTrip(fixture.data_file, "")["records"] == 0);
}

TEST_CASE("lmdbio-provenance names the field that differs", "[tools]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Put("a", "1").Put("b", "2").Commit();
  Report(ProvenanceProgram("create"), dir.path());
  db.Put("c", "3").Commit();
  const std::string reason =
      db.data_file().string() + ": transaction id is 2, the provenance file was made for 1";

  const ordered_json shown = Report(ProvenanceProgram("show"), dir.path());
  CHECK(shown["fits"] == false);
  CHECK(shown["reason"] == reason);
  const CommandResult verified = Run(ProvenanceProgram("verify"), dir.path());
  CHECK(FlawOfFailure(verified, ProvenanceProgram("verify"), reason) == "");
}

// A database of few records with its provenance file, and a check of programs on a damaged file.
class SpoiltProvenance {
 public:
  SpoiltProvenance() {
    TinyDb(dir_.path()).Put("a", "1").Put("b", "22").Put("c", std::string(5000, '3')).Commit();
    file_ = Report(ProvenanceProgram("create"), dir_.path())["provenance"].get<std::string>();
    content_ = ReadWholeFile(file_);
  }

  const std::vector<std::byte>& content() const { return content_; }

  // Checks that the programs refuse `content` as the provenance file.
  void CheckRefused(Bytes content, const Program& program) const {
    WriteWholeFile(file_, content);
    REQUIRE(FlawOfFailure(Run(program, dir_.path()), program, file_.string() + ": ") == "");
  }

 private:
  TempDir dir_;
  fs::path file_;
  std::vector<std::byte> content_;
};

TEST_CASE("lmdbio-provenance refuses a file with any byte changed", "[tools]") {
  const SpoiltProvenance spoilt;
  std::vector<std::byte> content = spoilt.content();
  for (size_t i = 0; i < content.size(); ++i) {
    INFO("byte " << i << " of " << content.size());
    const std::byte flip{static_cast<unsigned char>(1U << (i % 8))};
    content[i] ^= flip;
    spoilt.CheckRefused(content, ProvenanceProgram("verify"));
    content[i] ^= flip;
  }
}

TEST_CASE("lmdbio-provenance refuses a file cut at any length", "[tools]") {
  const SpoiltProvenance spoilt;
  for (size_t length = 0; length < spoilt.content().size(); ++length) {
    INFO("cut to " << length);
    spoilt.CheckRefused(Bytes(spoilt.content()).first(length), ProvenanceProgram("show"));
  }
  std::vector<std::byte> longer = spoilt.content();
  longer.push_back(std::byte{0});
  spoilt.CheckRefused(longer, ProvenanceProgram("verify"));
}

TEST_CASE("lmdbio-provenance names an impossible provenance file", "[tools]") {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Put("a", "1").Commit();
  const fs::path file = db.data_file().string() + ".prov";
  std::string reason;
  SECTION("none") { reason = "No such file or directory"; }
  SECTION("a folder") {
    fs::create_directory(file);
    reason = "is not a regular file";
  }
  SECTION("a pipe without a writer") {
    REQUIRE(RunCommand({"mkfifo", file.string()}).exit_code == 0);
    reason = "is not a regular file";
  }
  SECTION("a link to itself") {
    fs::create_symlink(file, file);
    reason = "Too many levels of symbolic links";
  }
  SECTION("far too long") {
    WriteWholeFile(file, AsBytes("x"));
    fs::resize_file(file, uint64_t{1} << 40);
    reason = "1099511627776 bytes";
  }
  for (const char* command : {"show", "verify"}) {
    const CommandResult result = Run(ProvenanceProgram(command), dir.path());
    CHECK(FlawOfFailure(result, ProvenanceProgram(command), file.string() + ": ") == "");
    CHECK(FlawOfFailure(result, ProvenanceProgram(command), reason) == "");
  }
}

std::vector<std::string> NamesOf(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("lmdbio-provenance create leaves no file without write permission", "[tools]") {
  const TempDir dir;
  fs::permissions(dir.path(), fs::perms(0755));
  TinyDb(dir.path()).Put("a", "1").Commit();
  fs::permissions(dir.path(), fs::perms(0555));
  const std::vector<std::string> names = NamesOf(dir.path());
  Program create = ProvenanceProgram("create");
  if (geteuid() == 0) {  // permissions do not stop root
    create.words.insert(create.words.begin(),
                        {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"});
    if (RunCommand({create.words.begin(), create.words.begin() + 4}).exit_code == 127) {
      WARN("skipped: setpriv is not installed");
      return;
    }
  }
  const CommandResult result = Run(create, dir.path());
  CHECK(FlawOfFailure(result, create,
                      (dir.path() / "data.mdb.prov").string() +
                          ": cannot be written: Permission denied") == "");
  CHECK(NamesOf(dir.path()) == names);
}

TEST_CASE("lmdbio-provenance create does not change a path that it cannot replace", "[tools]") {
  const TempDir dir;
  TinyDb(dir.path()).Put("a", "1").Commit();
  fs::create_directory(dir.path() / "data.mdb.prov");
  const std::vector<std::string> names = NamesOf(dir.path());
  const CommandResult result = Run(ProvenanceProgram("create"), dir.path());
  CHECK(FlawOfFailure(result, ProvenanceProgram("create"), "data.mdb.prov: cannot be") == "");
  CHECK(NamesOf(dir.path()) == names);
}

}  // namespace
}  // namespace lmdbio::test
