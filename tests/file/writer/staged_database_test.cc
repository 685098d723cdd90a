// Goal: a load that is killed at any moment leaves no database, or a complete one. The next load in
// the folder leaves nothing else. Files of running loads and of users stay.
#include "lmdbio/file/writer/staged_database.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;
using test::NamesIn;
using test::ReadWholeTextFile;
using test::TempDir;

fs::path DataFileOf(const fs::path& path) {
  return fs::is_directory(path) ? path / "data.mdb" : path;
}

bool Load(const fs::path& path, DatabaseShape shape, const std::string& content) {
  Result<StagedDatabase> staged = StagedDatabase::Create(path, shape);
  if (!staged) return false;
  test::WriteWholeFile(staged->working_data_file(), AsBytes(content));
  return staged->Publish().has_value();
}

TEST_CASE("The next load removes the files of one that was killed", "[writer][fault]") {
  const TempDir dir;
  const fs::path path = dir.path() / "db";
  const DatabaseShape shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  // The next load has another name in the same folder, or the same name in another shape.
  const std::string next = GENERATE("db", "other");
  const DatabaseShape next_shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  CAPTURE(static_cast<int>(shape), next, static_cast<int>(next_shape));
  int left_count = 0, wrong_count = 0;

  const int kill_count = test::InterruptAtEachCall(
      test::Interruption::kKill, [&] { return Load(path, shape, "first"); },
      [&] {
        if (NamesIn(dir.path()).contains("db.lmdbio-partial")) ++left_count;
        if (fs::exists(path)) {
          if (ReadWholeTextFile(DataFileOf(path)) != "first") ++wrong_count;
          fs::remove_all(path);
        }
        if (!Load(dir.path() / next, next_shape, "next")) ++wrong_count;
        if (NamesIn(dir.path()) != std::set<std::string>{next}) ++wrong_count;
        if (ReadWholeTextFile(DataFileOf(dir.path() / next)) != "next") ++wrong_count;
        fs::remove_all(dir.path() / next);
      });

  if (kill_count == 0) {
    WARN("skipped: cannot trace a child");
    return;
  }
  CHECK(left_count > 5);
  CHECK(wrong_count == 0);
}

// Goal: a load never takes the files of another one, which is at any step of it, for abandoned.
TEST_CASE("Two loads finish, wherever the second begins", "[writer]") {
  const TempDir dir;
  const fs::path path = dir.path() / "db", other = dir.path() / "other";
  const DatabaseShape shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  CAPTURE(static_cast<int>(shape));
  int wrong_count = 0;
  const int pause_count = test::InterruptAtEachCall(
      test::Interruption::kPause,
      [&] {
        fs::remove_all(path);
        return Load(path, shape, "first") && ReadWholeTextFile(DataFileOf(path)) == "first";
      },
      [&] {
        fs::remove_all(other);
        if (!Load(other, shape, "other")) ++wrong_count;
      });
  if (pause_count == 0) {
    WARN("skipped: cannot trace a child");
    return;
  }
  CHECK(wrong_count == 0);
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"db", "other"});
}

TEST_CASE("A load leaves the files of a running one", "[writer]") {
  const TempDir dir;
  const DatabaseShape shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  Result<StagedDatabase> running = StagedDatabase::Create(dir.path() / "db", shape);
  REQUIRE(running);
  test::WriteWholeFile(running->working_data_file(), AsBytes("half"));

  const Result<StagedDatabase> same = StagedDatabase::Create(dir.path() / "db", shape);
  REQUIRE_FALSE(same);
  CHECK(same.error().code() == ErrorCode::kInvalidArgument);
  CHECK(same.error().message() ==
        (dir.path() / "db.lmdbio-partial").string() + " exists: another load is running");
  CHECK(Load(dir.path() / "other", shape, "other"));
  CHECK(ReadWholeTextFile(running->working_data_file()) == "half");
  REQUIRE(running->Publish());
  CHECK(ReadWholeTextFile(DataFileOf(dir.path() / "db")) == "half");
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"db", "other"});
}

// Goal: after the rename, the lock still belongs to the load, and no other one takes the database
// for abandoned.
TEST_CASE("A load leaves a database that has just got its name", "[writer]") {
  const TempDir dir;
  const DatabaseShape shape = GENERATE(DatabaseShape::kDirectory, DatabaseShape::kSingleFile);
  REQUIRE(Load(dir.path() / "db", shape, "first"));
  REQUIRE(Load(dir.path() / "other", shape, "second"));
  CHECK(ReadWholeTextFile(DataFileOf(dir.path() / "db")) == "first");
}

TEST_CASE("A load leaves files of the user that look like unfinished ones", "[writer]") {
  const TempDir dir;
  fs::create_directories(dir.path() / "db.partial");
  test::WriteWholeFile(dir.path() / "db.partial/data.mdb", AsBytes("part of db"));
  const fs::path working = dir.path() / "db.lmdbio-partial";
  SECTION("a folder with other files") {
    fs::create_directory(working);
    test::WriteWholeFile(working / "notes", AsBytes("precious"));
    test::WriteWholeFile(working / "data.mdb", AsBytes("precious"));
  }
  SECTION("a link") {
    fs::create_directory(dir.path() / "target");
    fs::create_symlink("target", working);
  }
  SECTION("a FIFO") { REQUIRE(::mkfifo(working.c_str(), 0600) == 0); }
  const std::set<std::string> before = NamesIn(dir.path());
  const Result<StagedDatabase> staged =
      StagedDatabase::Create(dir.path() / "db", DatabaseShape::kDirectory);
  REQUIRE_FALSE(staged);
  CHECK(staged.error().message() ==
        working.string() + " exists, and may belong to another load; remove it to go on");
  CHECK(NamesIn(dir.path()) == before);
  CHECK(fs::exists(dir.path() / "db.partial/data.mdb"));
  if (fs::is_directory(working) && !fs::is_symlink(working)) {
    CHECK(NamesIn(working) == std::set<std::string>{"data.mdb", "notes"});
  }
}

TEST_CASE("A load follows no link in a folder for everybody", "[writer]") {
  const TempDir dir;
  const fs::path shared = dir.path() / "shared", own = dir.path() / "own";
  fs::create_directory(shared);
  fs::create_directory(own);
  REQUIRE(::chmod(shared.c_str(), 01777) == 0);
  fs::create_symlink(own, shared / "link");
  const std::string path = shared / "link/db";
  const Result<StagedDatabase> staged = StagedDatabase::Create(path, DatabaseShape::kDirectory);
  REQUIRE_FALSE(staged);
  CHECK(staged.error().code() == ErrorCode::kPermission);
  CHECK(staged.error().message() ==
        path + ": cannot be written: " + (shared / "link").string() +
            " is a symbolic link in a folder that everybody may write to; name the file itself");
  CHECK(NamesIn(own).empty());
}

}  // namespace
}  // namespace lmdbio::file
