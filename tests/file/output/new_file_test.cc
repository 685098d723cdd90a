// Goal: a process that is killed at any moment leaves the old file or the new one, each complete,
// and the next writer of the path leaves nothing else. On every kind of file system.
#include "lmdbio/file/output/new_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <set>
#include <string>

#include "lmdbio/file/output/file_owner.h"
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
using test::NamesIn;
using test::ReadWholeTextFile;
using test::RefuseSystemCall;
using test::TempDir;
using test::Verdict;
using test::WriteOutput;

// A file system, or a sandbox, that does not know some calls.
enum class Lack { kNothing, kUnnamedFiles, kLinks };

bool Impose(Lack lack) {
  if (lack == Lack::kNothing) return true;
  if (lack == Lack::kLinks) return RefuseSystemCall({.number = SYS_linkat, .error_number = EPERM});
  return RefuseSystemCall({.number = SYS_openat,
                           .error_number = EOPNOTSUPP,
                           .argument = 2,
                           .argument_bits = O_TMPFILE & ~O_DIRECTORY});
}

TEST_CASE("A killed writer leaves a complete file, and the next writer nothing else",
          "[output][fault]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  const Lack lack = GENERATE(Lack::kNothing, Lack::kUnnamedFiles, Lack::kLinks);
  const bool has_old = GENERATE(true, false);
  CAPTURE(static_cast<int>(lack), has_old);
  const auto reset = [&] {
    fs::remove(path);
    if (has_old) test::WriteWholeFile(path, AsBytes("old"));
  };
  reset();
  int left_count = 0, wrong_count = 0;
  std::set<std::string> after;

  const int kill_count = test::InterruptAtEachCall(
      test::Interruption::kKill, [&] { return Impose(lack) && WriteOutput(path, "new"); },
      [&] {
        const std::string content = fs::exists(path) ? ReadWholeTextFile(path) : "none";
        if (content != "new" && content != (has_old ? "old" : "none")) ++wrong_count;
        left_count += static_cast<int>(std::ranges::count_if(NamesIn(dir.path()), IsWorkingName));
        if (!WriteOutput(path, "later") || ReadWholeTextFile(path) != "later") ++wrong_count;
        after.merge(NamesIn(dir.path()));
        reset();
      });

  if (kill_count == 0) {
    WARN("skipped: cannot trace a child");
    return;
  }
  CHECK(kill_count > 10);
  CHECK(wrong_count == 0);
  CHECK(after == std::set<std::string>{"file"});
  // A new file without a name gets its only name at the end.
  CHECK((left_count > 0) == (has_old || lack != Lack::kNothing));
}

// Goal: a writer never takes the work of another one, which is at any step of it, for abandoned.
TEST_CASE("Two writers finish, wherever the second begins", "[output]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  const Lack lack = GENERATE(Lack::kNothing, Lack::kUnnamedFiles, Lack::kLinks);
  const bool has_old = GENERATE(true, false);
  CAPTURE(static_cast<int>(lack), has_old);
  const auto reset = [&] {
    fs::remove(path);
    if (has_old) test::WriteWholeFile(path, AsBytes("old"));
  };
  int wrong_count = 0;
  const int pause_count = test::InterruptAtEachCall(
      test::Interruption::kPause,
      [&] {
        reset();
        if (!Impose(lack) || !WriteOutput(path, "first")) return false;
        const std::string content = ReadWholeTextFile(path);
        return NamesIn(dir.path()) == std::set<std::string>{"file"} &&
               (content == "first" || content == "second");
      },
      [&] {
        if (!WriteOutput(path, "second")) ++wrong_count;
      });
  if (pause_count == 0) WARN("skipped: cannot trace a child");
  CHECK(wrong_count == 0);
}

// The first writer has no file of this name yet, so only its lock protects its work.
Verdict TwoWritersFinish(const fs::path& path, Lack lack) {
  if (!Impose(lack)) return Verdict::kCannotTell;
  const auto first = OutputFile::Create(path);
  if (!first || !(*first)->Write(AsBytes("first"))) return Verdict::kWrong;
  if (!WriteOutput(path, "second") || ReadWholeTextFile(path) != "second") return Verdict::kWrong;
  const bool is_right = (*first)->Publish() && ReadWholeTextFile(path) == "first";
  return is_right ? Verdict::kRight : Verdict::kWrong;
}

TEST_CASE("A writer leaves the file of a running one", "[output]") {
  const TempDir dir;
  const Lack lack = GENERATE(Lack::kNothing, Lack::kUnnamedFiles, Lack::kLinks);
  CAPTURE(static_cast<int>(lack));
  const Verdict verdict = InChild([&] { return TwoWritersFinish(dir.path() / "file", lack); });
  if (verdict == Verdict::kCannotTell) WARN("skipped: cannot refuse system calls");
  CHECK(verdict != Verdict::kWrong);
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"file"});
}

TEST_CASE("NewFile goes around foreign files with its working names", "[output]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  test::WriteWholeFile(path, AsBytes("old"));
  test::WriteWholeFile(dir.path() / "victim", AsBytes("precious"));
  std::set<std::string> foreign = {"file", "victim"};
  // More names than the writer tries in order.
  for (uint32_t number = 0; number < kWorkingNames; ++number) {
    const std::string name = WorkingName("file", number);
    if (number % 2 == 0) {
      fs::create_symlink("victim", dir.path() / name);
    } else {
      REQUIRE(::mkfifo((dir.path() / name).c_str(), 0600) == 0);
    }
    foreign.insert(name);
  }
  const Lack lack = GENERATE(Lack::kNothing, Lack::kUnnamedFiles, Lack::kLinks);
  const Verdict verdict = InChild([&] {
    if (!Impose(lack)) return Verdict::kCannotTell;
    return WriteOutput(path, "new") ? Verdict::kRight : Verdict::kWrong;
  });
  CHECK(verdict != Verdict::kWrong);
  CHECK(NamesIn(dir.path()) == foreign);
  CHECK(ReadWholeTextFile(dir.path() / "victim") == "precious");
  if (verdict == Verdict::kRight) CHECK(ReadWholeTextFile(path) == "new");
}

TEST_CASE("NewFile does not replace a file that is no longer a regular one", "[output]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  test::WriteWholeFile(path, AsBytes("old"));
  const auto file = OutputFile::Create(path);
  REQUIRE(file);
  REQUIRE((*file)->Write(AsBytes("new")));
  fs::remove(path);
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const Status published = (*file)->Publish();
  REQUIRE_FALSE(published);
  CHECK(published.error().message() ==
        path.string() + ": cannot be replaced: it is no longer a regular file");
  CHECK(fs::is_fifo(path));
}

TEST_CASE("NewFile stays in its folder when the path leads elsewhere meanwhile", "[output]") {
  const TempDir dir;
  fs::create_directory(dir.path() / "folder");
  fs::create_directory(dir.path() / "victims");
  test::WriteWholeFile(dir.path() / "victims/file", AsBytes("precious"));
  const auto file = OutputFile::Create(dir.path() / "folder/file");
  REQUIRE(file);
  REQUIRE((*file)->Write(AsBytes("new")));
  fs::rename(dir.path() / "folder", dir.path() / "moved");
  fs::create_symlink("victims", dir.path() / "folder");
  REQUIRE((*file)->Publish());
  CHECK(ReadWholeTextFile(dir.path() / "victims/file") == "precious");
  CHECK(ReadWholeTextFile(dir.path() / "moved/file") == "new");
}

}  // namespace
}  // namespace lmdbio::file
