#include "lmdbio/file/io/open_files.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lmdbio/file/io/file_space.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/good.h"
#include "tests/support/random.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

using test::Good;

// Files that hold their own number as text.
std::vector<std::string> MakeFiles(const test::TempDir& dir, int count) {
  std::vector<std::string> paths;
  for (int i = 0; i < count; ++i) {
    paths.push_back(dir.path() / std::to_string(i));
    test::WriteWholeFile(paths.back(), test::AsBytes(std::to_string(i)));
  }
  return paths;
}

std::string TextOf(int fd) {
  char text[16] = {};
  const ssize_t got = ::pread(fd, text, sizeof text, 0);
  return {text, static_cast<size_t>(got)};
}

TEST_CASE("OpenFiles keeps the descriptors that were used last", "[io][open-files]") {
  const test::TempDir dir;
  OpenFiles files(MakeFiles(dir, 5), 2);
  CHECK(files.open_count() == 0);
  const int first = Good(files.Acquire(0, OpenAs::kBuffered));
  CHECK(Good(files.Acquire(0, OpenAs::kBuffered)) == first);
  CHECK(files.open_count() == 1);
  for (const size_t i : {1, 2, 3}) {
    const OpenFile open = Good(OpenFile::Of(files, i));
    CHECK(TextOf(open.fd()) == std::to_string(i));
    CHECK(files.open_count() == 2);
  }
  // File 0 is in use, so it is still open.
  CHECK(TextOf(first) == "0");
  files.Release(0, OpenAs::kBuffered);
  CHECK(files.open_count() == 2);
}

TEST_CASE("OpenFiles waits for a descriptor, or says that there is none", "[io][open-files]") {
  const test::TempDir dir;
  OpenFiles files(MakeFiles(dir, 5), 2);
  std::optional<OpenFile> first = Good(OpenFile::Of(files, 0));
  const OpenFile second = Good(OpenFile::Of(files, 1));
  CHECK(!Good(OpenFile::TryOf(files, 2, OpenAs::kBuffered)));
  CHECK(!Good(OpenFile::TryOf(files, 1, OpenAs::kScattered)));
  CHECK(Good(OpenFile::TryOf(files, 1, OpenAs::kBuffered)));  // it is open
  std::atomic<bool> is_open = false;
  std::string text;
  std::jthread waiter([&] {
    const OpenFile third = Good(OpenFile::Of(files, 2));
    text = TextOf(third.fd());
    is_open = true;
  });
  CHECK(!is_open);
  first.reset();
  waiter.join();
  CHECK(text == "2");
  CHECK(files.open_count() == 2);
}

TEST_CASE("OpenFiles refuses a file that has replaced another", "[io][open-files]") {
  const test::TempDir dir;
  const std::vector<std::string> paths = MakeFiles(dir, 3);
  OpenFiles files(paths, 2);
  for (size_t i = 0; i < 3; ++i) Good(OpenFile::Of(files, i));
  std::filesystem::copy_file(paths[0], paths[0] + ".new");
  std::filesystem::rename(paths[0] + ".new", paths[0]);
  const auto stale = OpenFile::Of(files, 0);
  REQUIRE(!stale);
  CHECK(stale.error().code() == ErrorCode::kStale);
  CHECK(stale.error().message() ==
        paths[0] + ": the file was changed while it was read: another file has replaced it");
  std::filesystem::remove(paths[1]);
  Good(OpenFile::Of(files, 2));
  CHECK(OpenFile::Of(files, 2));
}

TEST_CASE("OpenFiles gives up idle descriptors when none is left", "[io][open-files]") {
  const test::TempDir dir;
  OpenFiles files(MakeFiles(dir, 40), 100);
  for (size_t i = 0; i < 20; ++i) Good(OpenFile::Of(files, i));
  CHECK(files.open_count() == 20);
  struct rlimit before = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  // The lowest number that is free now.
  const int next = ::dup(0);
  REQUIRE(next >= 0);
  ::close(next);
  struct rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(next);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  const auto more = OpenFile::Of(files, 30);
  const bool is_open = more.has_value() && TextOf(more->fd()) == "30";
  const size_t open_count = files.open_count();
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(is_open);
  CHECK(open_count == 20);
}

TEST_CASE("OpenFiles serves several threads", "[io][open-files]") {
  const test::TempDir dir;
  OpenFiles files(MakeFiles(dir, 30), 8);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      threads.emplace_back([&, seed] {
        test::Random random(seed);
        for (int i = 0; i < 500; ++i) {
          const size_t file = random.Below(30);
          const auto open = OpenFile::Of(files, file);
          if (!open || TextOf(open->fd()) != std::to_string(file)) ++wrong;
        }
      });
    }
  }
  CHECK(wrong == 0);
  CHECK(files.open_count() <= 8);
}

TEST_CASE("FileSpace cuts extents at the ends of files", "[io][file-space]") {
  constexpr uint64_t kAlign = FileSpace::kFileAlignBytes;
  FileSpace space;
  CHECK(space.end() == 0);
  space.Add(100);
  space.Add(kAlign);
  space.Add(7);
  REQUIRE(space.file_count() == 3);
  CHECK(space.begin(0) == 0);
  CHECK(space.begin(1) == kAlign);
  CHECK(space.begin(2) == 2 * kAlign);
  CHECK(space.end() == 2 * kAlign + 7);
  CHECK(space.FileAt(0) == 0);
  CHECK(space.FileAt(kAlign - 1) == 0);
  CHECK(space.FileAt(kAlign) == 1);
  CHECK(space.FileAt(9 * kAlign) == 2);
  const auto pieces = space.Cut({50, 2 * kAlign});
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].file == 0);
  CHECK(pieces[0].extent == Extent{50, 50});
  CHECK(pieces[0].into_extent == 0);
  CHECK(pieces[1].file == 1);
  CHECK(pieces[1].extent == Extent{0, kAlign});
  CHECK(pieces[1].into_extent == kAlign - 50);
  CHECK(pieces[2].file == 2);
  CHECK(pieces[2].extent == Extent{0, 50});  // beyond the end: reading it fails
  CHECK(pieces[2].into_extent == 2 * kAlign - 50);
  CHECK(space.Cut({200, 100}).empty());
  CHECK(space.Cut({5, 0}).empty());
}

TEST_CASE("OpenFilesMax has a default", "[io][open-files]") {
  CHECK(OpenFilesMax(1) == 2);
  CHECK(OpenFilesMax(70) == 70);
  struct rlimit limit = {};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= 4096) {
    CHECK(OpenFilesMax(0) == limit.rlim_cur / 4);
  }
}

}  // namespace
}  // namespace lmdbio::file
