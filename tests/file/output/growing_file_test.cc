// Goal: a growing file never empties a file that others have put in its place.
#include "lmdbio/file/output/growing_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/file/output/write_output.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;
using test::kNobody;
using test::ReadWholeTextFile;
using test::TempDir;

TEST_CASE("OpenGrowingFile creates and empties files", "[output]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  for (const char* text : {"long text", "short"}) {
    const auto file = OpenGrowingFile(path);
    REQUIRE(file);
    CHECK(ReadWholeTextFile(path).empty());
    const std::string_view all = text;
    REQUIRE(::write(file->get(), all.data(), all.size()) == static_cast<ssize_t>(all.size()));
    CHECK(ReadWholeTextFile(path) == all);
  }
}

TEST_CASE("OpenGrowingFile empties no file by a trap in a folder for everybody", "[output]") {
  const TempDir dir;
  const fs::path shared = dir.path() / "shared", path = shared / "file";
  const fs::path victim = dir.path() / "victim";
  fs::create_directory(shared);
  REQUIRE(::chmod(shared.c_str(), 01777) == 0);
  test::WriteWholeFile(victim, AsBytes("precious"));
  std::string why;
  SECTION("a symbolic link") {
    fs::create_symlink(victim, path);
    why = path.string() +
          " is a symbolic link in a folder that everybody may write to; name the file itself";
  }
  SECTION("a second name of a file") {
    fs::create_hard_link(victim, path);
    why = "it has other names, and is in a folder that everybody may write to; name another file";
  }
  SECTION("a file of another user") {
    test::WriteWholeFile(path, AsBytes("theirs"));
    if (::chown(path.c_str(), kNobody, kNobody) != 0) {
      WARN("skipped: cannot give a file away");
      return;
    }
    why = "it belongs to user 65534, in a folder that everybody may write to; name another file";
  }
  const auto file = OpenGrowingFile(path);
  REQUIRE_FALSE(file);
  CHECK(file.error().code() == ErrorCode::kPermission);
  CHECK(file.error().message() == path.string() + ": cannot be written: " + why);
  CHECK(ReadWholeTextFile(victim) == "precious");
  CHECK_FALSE(ReadWholeTextFile(path).empty());
}

}  // namespace
}  // namespace lmdbio::file
