// Goal: a timeline never empties a file that others have put in its place, and neither a full disk
// nor a limit of file sizes ends the process or leaves a part of an event.
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>

#include "lmdbio/trace/timeline.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::trace {
namespace {

namespace fs = std::filesystem;
using test::AsBytes;
using test::InChild;
using test::TempDir;
using test::Verdict;

// Writes a timeline until it fails. kRight: it has failed with `error_number`, and its file ends
// with a whole event.
Verdict EndsWithWholeEvents(const fs::path& path, int error_number) {
  const auto timeline = Timeline::Open({.path = path});
  if (!timeline) return Verdict::kWrong;
  Status flushed;
  for (int i = 0; i < 100'000 && flushed; ++i) {
    TimelineTensor row = (*timeline)->Begin("t", 8, i);
    (*timeline)->End(row, "allreduce", i);
    if (i % 97 == 0) flushed = (*timeline)->Flush();
  }
  const std::string text = test::ReadWholeTextFile(path.string() + ".0");
  const bool is_right = !flushed && flushed.error().error_number() == error_number &&
                        text.size() > 1000 && text.ends_with("},\n");
  return is_right ? Verdict::kRight : Verdict::kWrong;
}

TEST_CASE("A timeline above the limit of file sizes ends with one error", "[trace][fault]") {
  const TempDir dir;
  const Verdict verdict = InChild([&] {
    const rlimit limit{20'000, 20'000};  // and SIGXFSZ would end the process
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return Verdict::kCannotTell;
    return EndsWithWholeEvents(dir.path() / "trace", EFBIG);
  });
  CHECK(verdict == Verdict::kRight);
}

TEST_CASE("A timeline on a full disk is cut to whole events", "[trace][fault]") {
  const TempDir dir;
  const Verdict verdict = InChild([&] {
    // A file system in the namespace of the child, which ends with it.
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=64k") != 0) {
      return Verdict::kCannotTell;
    }
    return EndsWithWholeEvents(dir.path() / "trace", ENOSPC);
  });
  if (verdict == Verdict::kCannotTell) WARN("skipped: cannot mount a small disk");
  CHECK(verdict != Verdict::kWrong);
}

TEST_CASE("A timeline follows no link in a folder for everybody", "[trace]") {
  const TempDir dir;
  const fs::path shared = dir.path() / "shared", victim = dir.path() / "victim";
  fs::create_directory(shared);
  REQUIRE(::chmod(shared.c_str(), 01777) == 0);
  test::WriteWholeFile(victim, AsBytes("precious"));
  const std::string link = shared / "trace.0";
  fs::create_symlink(victim, link);
  const auto timeline = Timeline::Open({.path = shared / "trace"});
  REQUIRE_FALSE(timeline);
  CHECK(timeline.error().code() == ErrorCode::kIo);
  CHECK(timeline.error().message() ==
        link + ": cannot be written: " + link +
            " is a symbolic link in a folder that everybody may write to; name the file itself");
  CHECK(test::ReadWholeTextFile(victim) == "precious");
}

TEST_CASE("A timeline follows the link of the user", "[trace]") {
  const TempDir dir;
  fs::create_symlink("target", dir.path() / "trace.0");
  const auto timeline = Timeline::Open({.path = dir.path() / "trace"});
  REQUIRE(timeline);
  REQUIRE((*timeline)->Close());
  CHECK(fs::is_symlink(dir.path() / "trace.0"));
  CHECK(test::ReadWholeTextFile(dir.path() / "target").ends_with("]\n"));
}

}  // namespace
}  // namespace lmdbio::trace
