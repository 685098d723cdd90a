// Goal: for any path, every program reports a failure with one line that names the path, exit code
// 1 and no result on standard output. Misuse gives exit code 2.

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/fixtures/forged_file.h"
#include "tests/fixtures/lmdb_fixture.h"
#include "tests/fixtures/v3_fixture.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/program.h"

namespace lmdbio::test {
namespace {

namespace fs = std::filesystem;

void MakeSocket(const fs::path& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  REQUIRE(path.string().size() < sizeof(address.sun_path));
  std::strcpy(address.sun_path, path.c_str());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  ::close(fd);
}

void MakePipe(const fs::path& path) {
  REQUIRE(RunCommand({"mkfifo", path.string()}).exit_code == 0);
}

std::vector<std::byte> SoundFile() {
  const TempDir dir;
  TinyDb db(dir.path());
  db.Put("key", "value").Commit();
  return ReadWholeFile(db.data_file());
}

struct BadPath {
  const char* about;
  std::function<void(const fs::path&)> make;  // creates the object at the path
  std::string reason;
};

BadPath OfContent(const char* about, std::vector<std::byte> content, std::string reason) {
  return {about,
          [content = std::move(content)](const fs::path& path) { WriteWholeFile(path, content); },
          std::move(reason)};
}

BadPath OfText(const char* about, const std::string& text, std::string reason) {
  const Bytes bytes = AsBytes(text);
  return OfContent(about, {bytes.begin(), bytes.end()}, std::move(reason));
}

std::vector<BadPath> PathsToNoFile() {
  return {
      {"nothing", [](const fs::path&) {}, "No such file or directory"},
      {"an empty folder", [](const fs::path& path) { fs::create_directory(path); },
       "the directory holds no data.mdb"},
      {"a pipe", MakePipe, "is not a regular file"},
      {"a pipe in a folder",
       [](const fs::path& path) {
         fs::create_directory(path);
         MakePipe(path / "data.mdb");
       },
       "data.mdb: is not a regular file"},
      {"a folder in a folder",
       [](const fs::path& path) { fs::create_directories(path / "data.mdb"); },
       "data.mdb: is not a regular file"},
      {"a socket", MakeSocket, "is not a regular file"},
      {"a character device", [](const fs::path& path) { fs::create_symlink("/dev/zero", path); },
       "is not a regular file"},
      {"a link to itself", [](const fs::path& path) { fs::create_symlink(path, path); },
       "Too many levels of symbolic links"},
      {"a link to nothing", [](const fs::path& path) { fs::create_symlink("gone", path); },
       "No such file or directory"},
  };
}

std::vector<BadPath> FilesOfOtherKinds() {
  return {
      OfText("an empty file", "", "the file is empty"),
      OfText("one byte", "x", "not an LMDB data file"),
      OfText("zeros", std::string(1 << 16, '\0'), "not an LMDB data file"),
      OfText("text", std::string(9000, 'x') + "\n", "not an LMDB data file"),
      OfContent("of 32 bits", Forge32BitFile(4096), "32-bit"),
      OfContent("of the other byte order", ForgeOtherEndianFile(SoundFile()), "byte order"),
      OfContent("of version 2", ForgeVersion(V3FixtureBytes("fresh"), 2), "version 2"),
      OfContent("of an unknown version", ForgeVersion(SoundFile(), 7), "version 7"),
      OfContent("with checksums", V3FixtureBytes("checksum"), "checksum"),
      OfContent("encrypted", V3FixtureBytes("encrypted"), "encrypted"),
  };
}

void CheckRefused(const BadPath& bad, const fs::path& path) {
  INFO(bad.about);
  bad.make(path);
  for (const Program& program : AllPrograms()) {
    INFO(program.words.back());
    const CommandResult result = Run(program, path);
    CHECK(FlawOfFailure(result, program, path.string()) == "");
    CHECK(FlawOfFailure(result, program, bad.reason) == "");
  }
}

TEST_CASE("The programs name the fault of a path", "[tools][fault]") {
  for (const BadPath& bad : PathsToNoFile()) {
    const TempDir dir;
    CheckRefused(bad, dir.path() / "bad");
  }
}

TEST_CASE("The programs name the fault of a file", "[tools][fault]") {
  for (const BadPath& bad : FilesOfOtherKinds()) {
    const TempDir dir;
    CheckRefused(bad, dir.path() / "bad");
  }
}

TEST_CASE("The programs name a path with any characters", "[tools][fault]") {
  const BadPath nothing = {"nothing", [](const fs::path&) {}, "No such file or directory"};
  const TempDir dir;
  for (const char* name : {"\xc3\xa4\xe6\xbc\xa2", "with blank", "{} %s %n", "-x", "\xff"}) {
    CheckRefused(nothing, dir.path() / name);
  }
  CheckRefused(nothing, dir.path() / std::string(255, 'n'));
  CheckRefused({"too long a name", [](const fs::path&) {}, "File name too long"},
               dir.path() / std::string(256, 'n'));
}

// A message is one line, so that scripts can parse it.
TEST_CASE("The programs name a path with a line break in one line", "[tools][fault]") {
  const TempDir dir;
  for (const Program& program : AllPrograms()) {
    const CommandResult result = Run(program, dir.path() / "two\nlines");
    CHECK(FlawOfFailure(result, program, "No such file or directory") == "");
  }
}

TEST_CASE("The programs report a file without read permission", "[tools][fault]") {
  const TempDir dir;
  fs::permissions(dir.path(), fs::perms(0755));
  const fs::path path = dir.path() / "secret";
  WriteWholeFile(path, SoundFile());
  fs::permissions(path, fs::perms(0200));
  std::vector<std::string> as_nobody;
  if (geteuid() == 0) {  // permissions do not stop root
    as_nobody = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  }
  for (Program program : AllPrograms()) {
    program.words.insert(program.words.begin(), as_nobody.begin(), as_nobody.end());
    const CommandResult result = Run(program, path);
    if (result.exit_code > 2) {
      WARN("skipped: cannot run a program as another user: " << result.errors);
      return;
    }
    CHECK(FlawOfFailure(result, program, path.string() + ": cannot be opened: Permission denied") ==
          "");
  }
}

TEST_CASE("The programs distinguish misuse from failure", "[tools]") {
  for (const Program& program : AllPrograms()) {
    for (const std::vector<std::string>& operands :
         {std::vector<std::string>{}, {"a", "b"}, {"--unknown", "a"}, {"-z", "a"}, {"--js", "a"}}) {
      std::vector<std::string> words = program.words;
      words.insert(words.end(), operands.begin(), operands.end());
      const CommandResult result = RunCommand(words);
      INFO(result.errors);
      CHECK(result.exit_code == 2);
      CHECK(result.output.empty());
      CHECK(std::ranges::count(result.errors, '\n') == 1);
      CHECK(result.errors.starts_with(program.name + ": "));
      CHECK(result.errors.ends_with(" --help)\n"));
    }
  }
  CHECK(Run(DumpProgram(), "x", {"-a", "-s", "name"}).exit_code == 2);
  CHECK(Run(DumpProgram(), "x", {"-s"}).exit_code == 2);
  CHECK(Run(ProvenanceProgram("create"), "x", {"--commit-interval", "-1"}).exit_code == 2);
  CHECK(Run(ProvenanceProgram("repair"), "x").exit_code == 2);
}

// Lengths at which a file of a few hundred pages is cut: at page ends, next to them, and in
// between.
std::set<uint64_t> Cuts(uint64_t size_bytes) {
  std::set<uint64_t> cuts = {1, 2, 23, 24, 100, 151, 152, 153, 4095};
  for (uint64_t page = 4096; page < size_bytes; page += 4096 * (1 + page / 65536)) {
    cuts.insert({page - 1, page, page + 1, page + 2000});
  }
  cuts.insert(size_bytes - 1);
  return cuts;
}

// A dump may start before it reaches the damage, but then its last line is missing. A cut that
// removes only free pages has no effect.
TEST_CASE("The programs refuse a truncated file", "[tools][fault]") {
  const TempDir dir;
  const Fixture fixture = WriteFixture(FindFixture("updated"), dir.path());
  const std::string whole_dump = Run(DumpProgram(), fixture.data_file).output;
  const std::vector<std::byte> content = ReadWholeFile(fixture.data_file);
  uint64_t refused_count = 0;
  const std::set<uint64_t> cuts = Cuts(content.size());
  for (const uint64_t cut : cuts) {
    INFO("cut to " << cut);
    const fs::path path = dir.path() / "cut";
    WriteWholeFile(path, Bytes(content).first(cut));
    CommandResult result = Run(DumpProgram(), path);
    if (result.exit_code == 0) {
      REQUIRE((result.output == whole_dump));
      continue;
    }
    ++refused_count;
    REQUIRE_FALSE(result.output.ends_with("DATA=END\n"));
    REQUIRE(whole_dump.starts_with(result.output));
    result.output.clear();
    REQUIRE(FlawOfFailure(result, DumpProgram(), path.string() + ": ") == "");
    if (refused_count % 8 != 0) continue;
    for (const Program& program : {StatProgram(), ProvenanceProgram("create")}) {
      REQUIRE(FlawOfFailure(Run(program, path), program, path.string() + ": ") == "");
    }
    REQUIRE_FALSE(fs::exists(path.string() + ".prov"));
  }
  CHECK(refused_count > cuts.size() / 2);
}

// Runs a shell line in which $0 is the program and $1 the data file.
CommandResult RunShell(const Program& program, const std::string& line, const fs::path& path) {
  return RunCommand({"bash", "-c", line, program.words[0], path.string()});
}

TEST_CASE("The programs fail if their output cannot be written", "[tools][fault]") {
  const TempDir dir;
  const fs::path path = WriteFixture(FindFixture("named"), dir.path()).data_file;
  for (const Program& program : {DumpProgram(), StatProgram()}) {
    CHECK(FlawOfFailure(RunShell(program, "\"$0\" \"$1\" > /dev/full", path), program,
                        ": standard output: No space left on device\n") == "");
    CHECK(FlawOfFailure(RunShell(program, "\"$0\" \"$1\" >&-", path), program,
                        ": standard output: Bad file descriptor\n") == "");
  }
}

// As usual in a pipe, SIGPIPE ends the program without a message.
TEST_CASE("lmdbio-dump ends silently when the reader closes the pipe", "[tools][fault]") {
  const TempDir dir;
  const fs::path path = WriteFixture(FindFixture("ordered"), dir.path()).data_file;
  const CommandResult result =
      RunShell(DumpProgram(), "\"$0\" \"$1\" | head -n 1; echo ${PIPESTATUS[0]}", path);
  CHECK(result.output == "VERSION=3\n141\n");
  CHECK(result.errors.empty());
}

}  // namespace
}  // namespace lmdbio::test
