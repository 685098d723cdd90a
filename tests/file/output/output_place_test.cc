// Goal: the rules for links, streams and open files, without the help of the kernel's settings. A
// refusal names the path, the link and the remedy, and changes nothing.
#include "lmdbio/file/output/output_place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "lmdbio/file/output/output_file.h"
#include "tests/file/output/write_output.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;
using test::InChild;
using test::kNobody;
using test::ReadWholeTextFile;
using test::TempDir;
using test::Verdict;
using test::WriteOutput;

// A folder for everybody, as /tmp is, and a file that nobody may change by a link in it.
struct SharedFolder {
  SharedFolder() {
    fs::create_directory(path);
    REQUIRE(::chmod(path.c_str(), 01777) == 0);
    fs::create_directory(own);
    test::WriteWholeFile(victim, AsBytes("precious"));
  }
  const TempDir dir;
  const fs::path path = dir.path() / "shared";
  const fs::path own = dir.path() / "own";
  const fs::path victim = own / "victim";
};

void CheckRefused(const fs::path& path, const std::string& why) {
  const Status written = WriteOutput(path, "new");
  REQUIRE_FALSE(written);
  CHECK(written.error().code() == ErrorCode::kPermission);
  CHECK(written.error().message() == path.string() + ": cannot be written: " + why);
}

TEST_CASE("No link in a folder for everybody is followed", "[output]") {
  const SharedFolder shared;
  const fs::path link = shared.path / "link";
  const std::string why =
      link.string() +
      " is a symbolic link in a folder that everybody may write to; name the file itself";
  SECTION("to a file") {
    fs::create_symlink(shared.victim, link);
    CheckRefused(link, why);
  }
  SECTION("to a file that does not exist yet") {
    fs::create_symlink(shared.own / "planted", link);
    CheckRefused(link, why);
    CHECK_FALSE(fs::exists(shared.own / "planted"));
  }
  SECTION("to the folder of the file") {
    fs::create_symlink(shared.own, link);
    CheckRefused(link / "victim", why);
    CHECK_FALSE(CheckLinks(link / "victim"));
  }
  SECTION("behind a link that may be followed") {
    fs::create_symlink(shared.victim, link);
    fs::create_symlink(link, shared.own / "first");
    CheckRefused(shared.own / "first", why);
  }
  SECTION("also without the sticky bit") {
    REQUIRE(::chmod(shared.path.c_str(), 0777) == 0);
    fs::create_symlink(shared.victim, link);
    CheckRefused(link, why);
  }
  CHECK(ReadWholeTextFile(shared.victim) == "precious");
  CHECK(fs::is_symlink(link));
}

TEST_CASE("A file in a folder for everybody is written", "[output]") {
  const SharedFolder shared;
  REQUIRE(WriteOutput(shared.path / "file", "new"));
  REQUIRE(WriteOutput(shared.path / "file", "newer"));
  CHECK(ReadWholeTextFile(shared.path / "file") == "newer");
  fs::create_symlink("../shared/file", shared.own / "link");
  REQUIRE(WriteOutput(shared.own / "link", "newest"));
  CHECK(ReadWholeTextFile(shared.path / "file") == "newest");
}

TEST_CASE("A link of a stranger is followed in a folder of the stranger only", "[output]") {
  const SharedFolder shared;
  const fs::path folder = shared.dir.path() / "folder", link = folder / "link";
  fs::create_directory(folder);
  fs::create_symlink(shared.victim, link);
  if (::lchown(link.c_str(), kNobody, kNobody) != 0) {
    WARN("skipped: cannot give a link away");
    return;
  }
  CheckRefused(link, link.string() + " is a symbolic link of user 65534 in a folder of user " +
                         std::to_string(::geteuid()) + "; name the file itself");
  CHECK(ReadWholeTextFile(shared.victim) == "precious");
  REQUIRE(::chown(folder.c_str(), kNobody, kNobody) == 0);
  REQUIRE(WriteOutput(link, "new"));
  CHECK(ReadWholeTextFile(shared.victim) == "new");
}

TEST_CASE("A FIFO of another user in a folder for everybody is refused", "[output]") {
  const SharedFolder shared;
  const fs::path fifo = shared.path / "fifo";
  REQUIRE(::mkfifo(fifo.c_str(), 0666) == 0);
  const UniqueFd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  REQUIRE(WriteOutput(fifo, "for me"));
  if (::chown(fifo.c_str(), kNobody, kNobody) != 0) {
    WARN("skipped: cannot give a FIFO away");
    return;
  }
  CheckRefused(fifo,
               "it belongs to user 65534, in a folder that everybody may write to; name another "
               "file");
}

TEST_CASE("A block device is refused", "[output]") {
  const TempDir dir;
  const fs::path device = dir.path() / "device";
  if (::mknod(device.c_str(), S_IFBLK | 0600, makedev(7, 250)) != 0) {
    WARN("skipped: cannot make a device node");
    return;
  }
  const Status written = WriteOutput(device, "new");
  REQUIRE_FALSE(written);
  CHECK(written.error().code() == ErrorCode::kInvalidArgument);
  CHECK(written.error().message() ==
        device.string() + ": cannot be written: it is a block device; name a file");
  CHECK(fs::is_block_file(device));
}

// Goal: a report on a redirected standard output is behind the text that is there. Neither of them
// is lost.
TEST_CASE("/dev/stdout is continued where it stands", "[output]") {
  const TempDir dir;
  const fs::path path = dir.path() / "out";
  const std::string name = GENERATE("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1");
  const Verdict verdict = InChild([&] {
    const UniqueFd out(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (::access(name.c_str(), F_OK) != 0) return Verdict::kCannotTell;
    if (::dup2(out.get(), STDOUT_FILENO) != STDOUT_FILENO) return Verdict::kCannotTell;
    const bool is_written = ::write(STDOUT_FILENO, "before ", 7) == 7 &&
                            WriteOutput(name, "report ") && ::write(STDOUT_FILENO, "after", 5) == 5;
    return is_written ? Verdict::kRight : Verdict::kWrong;
  });
  CHECK(verdict != Verdict::kWrong);
  if (verdict == Verdict::kRight) CHECK(ReadWholeTextFile(path) == "before report after");
}

TEST_CASE("OutputPlace walks along all kinds of paths", "[output]") {
  const TempDir dir;
  const fs::path before = fs::current_path();
  fs::create_directories(dir.path() / "a/b");
  fs::create_symlink("a/./b/..", dir.path() / "link");
  fs::current_path(dir.path());
  for (const char* path : {"file", "./file", "a/../file", "a//b/.././../file", "link/../file",
                           "/proc/self/cwd/file"}) {
    INFO(path);
    fs::remove("file");
    CHECK(WriteOutput(path, path));
    CHECK(ReadWholeTextFile("file") == path);
  }
  fs::current_path(before);
}

TEST_CASE("OutputPlace names paths that lead to no file", "[output]") {
  const TempDir dir;
  test::WriteWholeFile(dir.path() / "file", AsBytes("old"));
  const auto [name, error_number] = GENERATE(table<std::string, int>({{"", EISDIR},
                                                                      {".", EISDIR},
                                                                      {"none/file", ENOENT},
                                                                      {"none/", ENOENT},
                                                                      {"file/", ENOTDIR},
                                                                      {"file/x", ENOTDIR}}));
  INFO(name);
  const std::string path = dir.path().string() + "/" + name;
  const auto place = OutputPlace::Find(path);
  REQUIRE_FALSE(place);
  CHECK(place.error().error_number() == error_number);
  CHECK(place.error().message().starts_with(path + ": cannot be written: "));
  CHECK_FALSE(OutputPlace::Find(""));
}

}  // namespace
}  // namespace lmdbio::file
