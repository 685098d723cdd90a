// Goal: a reader of a path written by WriteFileAtomically finds one complete file. No other file is
// left beside it, after any failure. Links, devices and FIFOs are not replaced.
#include "lmdbio/file/source/small_file.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;
using test::AsText;
using test::InChild;
using test::NamesIn;
using test::ReadWholeTextFile;
using test::TempDir;
using test::Verdict;

TEST_CASE("ReadSmallFile reads up to the limit", "[io][small-file]") {
  const TempDir dir;
  const std::string path = dir.path() / "file";
  test::WriteWholeFile(path, AsBytes("12345"));
  const auto whole = ReadSmallFile(path, 5);
  REQUIRE(whole.has_value());
  CHECK(AsText(*whole) == "12345");
  const auto refused = ReadSmallFile(path, 4);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().code() == ErrorCode::kResourceExhausted);
  CHECK(refused.error().message() == path + ": has 5 bytes; expected at most 4");
}

TEST_CASE("ReadSmallFile reads an empty file and names a missing one", "[io][small-file]") {
  const TempDir dir;
  const std::string path = dir.path() / "file";
  const auto missing = ReadSmallFile(path, 5);
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code() == ErrorCode::kNotFound);
  CHECK(missing.error().message() == path + ": cannot be opened: No such file or directory");
  test::WriteWholeFile(path, {});
  const auto empty = ReadSmallFile(path, 0);
  REQUIRE(empty.has_value());
  CHECK(empty->empty());
}

TEST_CASE("WriteFileAtomically creates and replaces", "[io][small-file]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  for (const std::string& content :
       {std::string("first"), std::string(100000, 'x'), std::string(), std::string("last")}) {
    REQUIRE(WriteFileAtomically(path, AsBytes(content)).has_value());
    CHECK(ReadWholeTextFile(path) == content);
    CHECK(NamesIn(dir.path()) == std::set<std::string>{"file"});
  }
}

TEST_CASE("WriteFileAtomically does not change an open file", "[io][small-file]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  REQUIRE(WriteFileAtomically(path, AsBytes("old")).has_value());
  std::ifstream opened_before(path);
  REQUIRE(WriteFileAtomically(path, AsBytes("new content")).has_value());
  std::string seen;
  opened_before >> seen;
  CHECK(seen == "old");
}

TEST_CASE("WriteFileAtomically writes beside a name without a directory", "[io][small-file]") {
  const TempDir dir;
  const fs::path before = fs::current_path();
  fs::current_path(dir.path());
  const Status written = WriteFileAtomically("file", AsBytes("here"));
  fs::current_path(before);
  REQUIRE(written.has_value());
  CHECK(ReadWholeTextFile(dir.path() / "file") == "here");
}

TEST_CASE("WriteFileAtomically leaves no file if it cannot write", "[io][small-file]") {
  const TempDir dir;
  const fs::path directory = dir.path() / "directory";
  fs::create_directory(directory);
  test::WriteWholeFile(dir.path() / "file", AsBytes("old"));
  const std::set<std::string> before = NamesIn(dir.path());

  const Status missing = WriteFileAtomically(dir.path() / "none" / "file", AsBytes("new"));
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code() == ErrorCode::kNotFound);
  const Status inside_file = WriteFileAtomically(dir.path() / "file" / "x", AsBytes("new"));
  REQUIRE_FALSE(inside_file.has_value());
  CHECK(inside_file.error().code() == ErrorCode::kNotFound);
  const Status onto_directory = WriteFileAtomically(directory, AsBytes("new"));
  REQUIRE_FALSE(onto_directory.has_value());
  CHECK(onto_directory.error().message() ==
        directory.string() + ": cannot be written: Is a directory");

  CHECK(NamesIn(dir.path()) == before);
  CHECK(NamesIn(directory).empty());
  CHECK(ReadWholeTextFile(dir.path() / "file") == "old");
}

TEST_CASE("WriteFileAtomically keeps a symbolic link and replaces its target", "[io][small-file]") {
  const TempDir dir;
  const TempDir elsewhere;
  const fs::path target = elsewhere.path() / "target";
  fs::create_symlink(target, dir.path() / "absolute");
  fs::create_symlink("absolute", dir.path() / "chain");
  fs::create_symlink("../" + elsewhere.path().filename().string() + "/target",
                     dir.path() / "relative");
  const std::set<std::string> before = NamesIn(dir.path());
  // The first link leads to a file that does not exist yet.
  for (const std::string name : {"absolute", "chain", "relative"}) {
    INFO(name);
    REQUIRE(WriteFileAtomically(dir.path() / name, AsBytes("by " + name)).has_value());
    CHECK(ReadWholeTextFile(target) == "by " + name);
    CHECK(fs::is_symlink(dir.path() / name));
    CHECK(NamesIn(dir.path()) == before);
    CHECK(NamesIn(elsewhere.path()) == std::set<std::string>{"target"});
  }
  std::ifstream opened_before(target);
  REQUIRE(WriteFileAtomically(dir.path() / "chain", AsBytes("new")).has_value());
  std::string seen;
  std::getline(opened_before, seen);
  CHECK(seen == "by relative");
}

TEST_CASE("WriteFileAtomically names a loop of symbolic links", "[io][small-file]") {
  const TempDir dir;
  fs::create_symlink("loop", dir.path() / "loop");
  const Status written = WriteFileAtomically(dir.path() / "loop", AsBytes("new"));
  REQUIRE_FALSE(written.has_value());
  CHECK(written.error().message() ==
        (dir.path() / "loop").string() + ": cannot be written: Too many levels of symbolic links");
  CHECK(fs::is_symlink(dir.path() / "loop"));
}

TEST_CASE("WriteFileAtomically writes into a FIFO", "[io][small-file]") {
  const TempDir dir;
  const fs::path path = dir.path() / "fifo";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  // The reader opens the FIFO first; the content fits into the pipe.
  const UniqueFd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  const std::string content(50'000, 'x');
  REQUIRE(WriteFileAtomically(path, AsBytes(content)).has_value());
  std::string seen(content.size() + 1, '\0');
  CHECK(::read(reader.get(), seen.data(), seen.size()) == static_cast<ssize_t>(content.size()));
  CHECK(seen == content + '\0');
  CHECK(fs::is_fifo(path));
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"fifo"});
}

TEST_CASE("WriteFileAtomically refuses a socket", "[io][small-file]") {
  const TempDir dir;
  const fs::path path = dir.path() / "socket";
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = {}};
  REQUIRE(path.native().copy(address.sun_path, sizeof address.sun_path - 1) ==
          path.native().size());
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const Status written = WriteFileAtomically(path, AsBytes("new"));
  REQUIRE_FALSE(written.has_value());
  CHECK(written.error().code() == ErrorCode::kInvalidArgument);
  CHECK(written.error().message() ==
        path.string() + ": cannot be written: it is a socket; name a file");
  CHECK(fs::is_socket(path));
}

TEST_CASE("WriteFileAtomically writes into a device", "[io][small-file]") {
  // Separate device nodes, so that a defect cannot destroy those of the machine.
  constexpr unsigned kMemoryDevices = 1, kNull = 3, kFull = 7;
  const TempDir dir;
  const fs::path null = dir.path() / "null", full = dir.path() / "full";
  if (::mknod(null.c_str(), S_IFCHR | 0600, makedev(kMemoryDevices, kNull)) != 0 ||
      ::mknod(full.c_str(), S_IFCHR | 0600, makedev(kMemoryDevices, kFull)) != 0 ||
      !UniqueFd(::open(null.c_str(), O_WRONLY | O_CLOEXEC))) {
    WARN("skipped: cannot make a device node");
    return;
  }
  fs::create_symlink("null", dir.path() / "link");
  const std::set<std::string> before = NamesIn(dir.path());
  CHECK(WriteFileAtomically(null, AsBytes("new")).has_value());
  CHECK(WriteFileAtomically(dir.path() / "link", AsBytes("new")).has_value());
  const Status onto_full = WriteFileAtomically(full, AsBytes("new"));
  REQUIRE_FALSE(onto_full.has_value());
  CHECK(onto_full.error().code() == ErrorCode::kResourceExhausted);
  CHECK(fs::is_character_file(null));
  CHECK(fs::is_character_file(full));
  CHECK(fs::is_symlink(dir.path() / "link"));
  CHECK(NamesIn(dir.path()) == before);
}

TEST_CASE("WriteFileAtomically writes into a file without a name", "[io][small-file]") {
  const TempDir dir;
  const fs::path path = dir.path() / "file";
  test::WriteWholeFile(path, AsBytes("something longer"));
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  fs::remove(path);
  const std::string by_descriptor = "/proc/self/fd/" + std::to_string(fd.get());
  REQUIRE(WriteFileAtomically(by_descriptor, AsBytes("new")).has_value());
  CHECK(ReadWholeTextFile(by_descriptor) == "new");
  CHECK(NamesIn(dir.path()).empty());
}

// Writes `size_bytes` over a file with the content "old", and expects the error `code`.
Verdict FailsCleanly(const fs::path& directory, uint64_t size_bytes, ErrorCode code) {
  const std::set<std::string> before = NamesIn(directory);
  const Status written =
      WriteFileAtomically(directory / "file", AsBytes(std::string(size_bytes, 'n')));
  const bool is_right = !written && written.error().code() == code &&
                        NamesIn(directory) == before &&
                        ReadWholeTextFile(directory / "file") == "old";
  return is_right ? Verdict::kRight : Verdict::kWrong;
}

TEST_CASE("WriteFileAtomically keeps the old file when the new one grows too large",
          "[io][small-file][fault]") {
  const TempDir dir;
  test::WriteWholeFile(dir.path() / "file", AsBytes("old"));
  const Verdict verdict = InChild([&] {
    const rlimit limit{4096, 4096};
    std::signal(SIGXFSZ, SIG_IGN);
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return Verdict::kCannotTell;
    return FailsCleanly(dir.path(), 100000, ErrorCode::kIo);
  });
  CHECK(verdict == Verdict::kRight);
}

TEST_CASE("WriteFileAtomically keeps the old file in a directory that it may not write",
          "[io][small-file][fault]") {
  const TempDir dir;
  test::WriteWholeFile(dir.path() / "file", AsBytes("old"));
  fs::permissions(dir.path(), fs::perms(0555));
  const Verdict verdict = InChild([&] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::seteuid(kNobody) != 0) return Verdict::kCannotTell;
    return FailsCleanly(dir.path(), 10, ErrorCode::kPermission);
  });
  fs::permissions(dir.path(), fs::perms(0700));
  if (verdict == Verdict::kCannotTell) WARN("skipped: cannot become another user");
  CHECK(verdict != Verdict::kWrong);
}

TEST_CASE("WriteFileAtomically keeps the old file on a full disk", "[io][small-file][fault]") {
  const TempDir dir;
  const Verdict verdict = InChild([&] {
    // A file system in the namespace of the child, which ends with it.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
      return Verdict::kCannotTell;
    }
    test::WriteWholeFile(dir.path() / "file", AsBytes("old"));
    return FailsCleanly(dir.path(), 100000, ErrorCode::kResourceExhausted);
  });
  if (verdict == Verdict::kCannotTell) WARN("skipped: cannot mount a small disk");
  CHECK(verdict != Verdict::kWrong);
}

TEST_CASE("Concurrent writers leave one complete file, and readers see only complete files",
          "[io][small-file][threads]") {
  constexpr int kWriterCount = 4;
  const auto content_of = [](int writer) {
    return std::string(10000 + 1000 * static_cast<size_t>(writer), static_cast<char>('a' + writer));
  };
  std::set<std::string> contents;
  for (int writer = 0; writer < kWriterCount; ++writer) contents.insert(content_of(writer));
  const TempDir dir;
  const std::string name = GENERATE("file", "link");
  const fs::path path = dir.path() / name;
  fs::create_symlink("file", dir.path() / "link");
  REQUIRE(WriteFileAtomically(path, AsBytes(content_of(0))).has_value());

  std::atomic<int> failure_count{0};
  std::atomic<bool> is_done{false};
  std::thread reader([&] {
    while (!is_done) {
      const auto seen = ReadSmallFile(path, 1 << 20);
      if (!seen || !contents.contains(std::string(AsText(*seen)))) ++failure_count;
    }
  });
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kWriterCount; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 25; ++i) {
        if (!WriteFileAtomically(path, AsBytes(content_of(writer)))) ++failure_count;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  is_done = true;
  reader.join();
  CHECK(failure_count == 0);
  CHECK(contents.contains(ReadWholeTextFile(path)));
  CHECK(NamesIn(dir.path()) == std::set<std::string>{"file", "link"});
}

}  // namespace
}  // namespace lmdbio::file
