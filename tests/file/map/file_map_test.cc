// Goal: bytes of a map are those of the file, or CheckWhole says why not.
#include "lmdbio/file/map/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/align.h"
#include "lmdbio/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/check_in_child.h"
#include "tests/support/good.h"

namespace lmdbio::file {
namespace {

using test::CheckInChild;
using test::Good;
using test::Verdict;

const uint64_t kPage = MemoryPageBytes();
constexpr std::byte kFill{0x5A};

// A file without a name, full of kFill.
UniqueFd FilledFile(uint64_t size_bytes) {
  UniqueFd fd(::memfd_create("file_map_test", MFD_CLOEXEC));
  const std::vector<std::byte> fill(size_bytes, kFill);
  REQUIRE(::write(fd.get(), fill.data(), fill.size()) == static_cast<ssize_t>(size_bytes));
  return fd;
}

void Cut(const UniqueFd& fd, uint64_t size_bytes) {
  REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) == 0);
}

bool IsAll(Bytes bytes, std::byte value) {
  return std::all_of(bytes.begin(), bytes.end(), [value](std::byte b) { return b == value; });
}

TEST_CASE("A map has the bytes of the file", "[map]") {
  const uint64_t size_bytes = GENERATE(uint64_t{1}, uint64_t{4096}, uint64_t{100'001});
  const UniqueFd fd = FilledFile(size_bytes);
  const FileMap map = Good(FileMap::Open("a file", fd.get(), size_bytes));
  CHECK(map.bytes().size() == size_bytes);
  CHECK(IsAll(map.bytes(), kFill));
  CHECK(map.CheckWhole());
}

TEST_CASE("A map of no bytes is whole", "[map]") {
  const UniqueFd fd = FilledFile(0);
  const FileMap map = Good(FileMap::Open("a file", fd.get(), 0));
  CHECK(map.bytes().empty());
  CHECK(map.CheckWhole());
}

TEST_CASE("A file that is cut short under its map leaves zeros, and is told", "[map]") {
  const uint64_t size_bytes = 9 * kPage + 17;
  const uint64_t left_bytes = GENERATE(0 * kPage, 1 * kPage, 3 * kPage + 5, 9 * kPage + 1);
  CAPTURE(left_bytes);
  const UniqueFd fd = FilledFile(size_bytes);
  FileMap opened = Good(FileMap::Open("train/data.mdb", fd.get(), size_bytes));
  const FileMap map = std::move(opened);
  Cut(fd, left_bytes);
  CHECK(IsAll(map.bytes().first(left_bytes), kFill));
  CHECK(map.CheckWhole());
  CHECK(IsAll(map.bytes().subspan(left_bytes), std::byte{0}));
  // The rest of the last page is zeros without a loss, as in every map of a file.
  const bool is_lost = AlignUp(left_bytes, kPage) < size_bytes;
  REQUIRE(map.CheckWhole().has_value() == !is_lost);
  if (!is_lost) return;
  CHECK(map.CheckWhole().error().code() == ErrorCode::kStale);
  CHECK(map.CheckWhole().error().message() ==
        fmt::format("train/data.mdb: the file has shrunk from {} to {} bytes while it was read; "
                    "what was read beyond them is zeros",
                    size_bytes, left_bytes));
  Cut(fd, size_bytes);  // what was read is not forgotten when the file grows
  CHECK_FALSE(map.CheckWhole());
}

TEST_CASE("Threads may lose pages of many maps at once", "[map]") {
  constexpr size_t kMaps = 300;  // more than a block of ranges
  constexpr size_t kThreads = 4;
  const uint64_t size_bytes = 16 * kPage;
  std::vector<UniqueFd> files;
  std::vector<FileMap> maps;
  for (size_t i = 0; i < kMaps; ++i) {
    files.push_back(FilledFile(size_bytes));
    maps.push_back(Good(FileMap::Open("a file", files[i].get(), size_bytes)));
  }
  for (size_t i = 0; i < kMaps; ++i) Cut(files[i], i % 16 * kPage);
  std::atomic<size_t> wrong{0};
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (size_t i = 0; i < kMaps; ++i) {
        const Bytes bytes = maps[i].bytes();
        const bool is_right = IsAll(bytes.first(i % 16 * kPage), kFill) &&
                              IsAll(bytes.subspan(i % 16 * kPage), std::byte{0});
        if (!is_right || maps[i].CheckWhole()) ++wrong;
      }
      // Others begin and end meanwhile.
      for (int round = 0; round < 50; ++round) {
        const UniqueFd file(::memfd_create("file_map_test", MFD_CLOEXEC));
        if (::ftruncate(file.get(), static_cast<off_t>(kPage)) != 0) ++wrong;
        const auto map = FileMap::Open("a file", file.get(), kPage);
        if (!map || ::ftruncate(file.get(), 0) != 0) ++wrong;
        if (!map || !IsAll(map->bytes(), std::byte{0}) || map->CheckWhole()) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}

TEST_CASE("A map of a file that cannot be mapped is an error", "[map]") {
  const UniqueFd closed;
  const auto map = FileMap::Open("a file", closed.get(), kPage);
  REQUIRE_FALSE(map);
  CHECK(map.error().message() == "a file: cannot be mapped: Bad file descriptor");
}

TEST_CASE("A file whose size cannot be asked for loses one page at a time", "[map]") {
  CheckInChild([] {
    const UniqueFd fd = FilledFile(4 * kPage);
    const FileMap map = Good(FileMap::Open("a file", fd.get(), 4 * kPage));
    if (::ftruncate(fd.get(), 0) != 0) return Verdict::kWrong;
    ::close(fd.get());  // so that the handler cannot ask
    CHILD_CHECK(IsAll(map.bytes(), std::byte{0}));
    CHILD_CHECK(!map.CheckWhole());
    CHILD_CHECK(map.CheckWhole().error().code() == ErrorCode::kIo);
    CHILD_CHECK(map.CheckWhole().error().message() ==
                "a file: the storage failed at byte 0; what was read there is zeros");
    return Verdict::kRight;
  });
}

}  // namespace
}  // namespace lmdbio::file
