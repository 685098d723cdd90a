#include "lmdbio/file/io/cache_probe.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "lmdbio/base/align.h"
#include "lmdbio/base/unique_fd.h"
#include "tests/support/catch.h"
#include "tests/support/file_bytes.h"
#include "tests/support/in_child.h"
#include "tests/support/temp_dir.h"

namespace lmdbio::file {
namespace {

// Oracle: the share of the file's pages in the page cache, by mincore.
double ResidentShare(const std::string& path, uint64_t size_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  void* map = ::mmap(nullptr, size_bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  REQUIRE(map != MAP_FAILED);
  std::vector<unsigned char> resident(AlignUp(size_bytes, MemoryPageBytes()) / MemoryPageBytes());
  const int rc = ::mincore(map, size_bytes, resident.data());
  ::munmap(map, size_bytes);
  REQUIRE(rc == 0);
  uint64_t count = 0;
  for (const unsigned char page : resident) count += page & 1U;
  return static_cast<double>(count) / static_cast<double>(resident.size());
}

// Asks the kernel to drop the cached pages of the file. It may refuse, as on tmpfs.
void Forget(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ::fdatasync(fd.get());
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

constexpr uint64_t kFileBytes = 8 << 20;
constexpr long kCachestatCall = 451;

std::string WriteFile(const test::TempDir& dir, uint64_t size_bytes) {
  const std::string path = dir.path() / "file";
  test::WriteWholeFile(path, std::vector<std::byte>(size_bytes, std::byte{7}));
  return path;
}

TEST_CASE("ProbeCache finds a file that was just written in the page cache", "[io][cache_probe]") {
  const test::TempDir dir;
  const std::string path = WriteFile(dir, kFileBytes);
  if (ResidentShare(path, kFileBytes) < 1) return;  // short of memory
  const auto probe = ProbeCache(path);
  REQUIRE(probe);
  CHECK(probe->share > 0.9);
}

// A read with RWF_NOWAIT made the kernel fetch the page, so a second probe found a warm file.
TEST_CASE("ProbeCache of a cold file stays 0 in repeated calls", "[io][cache_probe]") {
  const bool can_count = GENERATE(true, false);
  CAPTURE(can_count);
  const test::TempDir dir;
  const std::string path = WriteFile(dir, kFileBytes);
  Forget(path);
  if (ResidentShare(path, kFileBytes) > 0) return;  // the file system keeps it
  CHECK(test::InChild([&] {
          if (!can_count && !test::RefuseSystemCall({kCachestatCall, ENOSYS, 0, 0})) {
            return test::Verdict::kRight;
          }
          for (int i = 0; i < 3; ++i) {
            const auto probe = ProbeCache(path);
            if (!probe || probe->share > 0.2) return test::Verdict::kWrong;
          }
          return test::Verdict::kRight;
        }) == test::Verdict::kRight);
}

TEST_CASE("ProbeCache estimates if the kernel does not count", "[io][cache_probe]") {
  const test::TempDir dir;
  const std::string path = WriteFile(dir, kFileBytes);
  if (ResidentShare(path, kFileBytes) < 1) return;  // short of memory
  CHECK(test::InChild([&] {
          if (!test::RefuseSystemCall({kCachestatCall, ENOSYS, 0, 0})) return test::Verdict::kRight;
          const auto probe = ProbeCache(path);
          return probe && probe->share > 0.9 ? test::Verdict::kRight : test::Verdict::kWrong;
        }) == test::Verdict::kRight);
}

TEST_CASE("ProbeCache is the share of the file that was read", "[io][cache_probe]") {
  const test::TempDir dir;
  const std::string path = WriteFile(dir, kFileBytes);
  Forget(path);
  if (ResidentShare(path, kFileBytes) > 0) return;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);  // nothing is read ahead
  std::vector<char> half(kFileBytes / 2);
  REQUIRE(::pread(fd.get(), half.data(), half.size(), 0) == static_cast<ssize_t>(half.size()));
  const auto probe = ProbeCache(path);
  REQUIRE(probe);
  CHECK(probe->share == Approx(ResidentShare(path, kFileBytes)).margin(0.05));
}

TEST_CASE("IsCached is true for exactly the parts of a file that were read", "[io][cache_probe]") {
  const test::TempDir dir;
  const std::string path = WriteFile(dir, kFileBytes);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (::syscall(kCachestatCall, fd.get(), nullptr, nullptr, 0) != 0 && errno == ENOSYS) return;
  Forget(path);
  if (ResidentShare(path, kFileBytes) > 0) return;     // the file system keeps it
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);  // nothing is read ahead
  std::vector<char> part(1 << 20);
  REQUIRE(::pread(fd.get(), part.data(), part.size(), 2 << 20) == 1 << 20);
  CHECK(IsCached(fd.get(), kFileBytes, {2 << 20, 1 << 20}));
  CHECK(IsCached(fd.get(), kFileBytes, {(2 << 20) + 5000, 10}));
  CHECK_FALSE(IsCached(fd.get(), kFileBytes, {(2 << 20) - 1, 2}));
  CHECK_FALSE(IsCached(fd.get(), kFileBytes, {0, kFileBytes}));
  CHECK_FALSE(IsCached(fd.get(), kFileBytes, {kFileBytes - 1, uint64_t{1} << 62}));
  CHECK(IsCached(fd.get(), kFileBytes, {kFileBytes, 1}));  // the extent is beyond the file
}

// Goal: every page that is missing lies in a missing run, and whole cached stretches in none.
TEST_CASE("CutByCache finds the cached stretches of a file", "[io][cache_probe]") {
  constexpr uint64_t kUnit = 128 << 10;
  const test::TempDir dir;
  const std::string path = WriteFile(dir, kFileBytes);
  Forget(path);
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  if (ProbeCache(path)->share > 0) {
    WARN("skipped: this file system cannot drop the cached pages of a file");
    return;
  }
  std::vector<std::byte> bytes(kFileBytes);
  const auto read = [&](uint64_t offset, uint64_t length) {
    REQUIRE(::pread(fd.get(), bytes.data(), length, static_cast<off_t>(offset)) ==
            static_cast<ssize_t>(length));
  };
  const auto runs_of = [&](Extent extent) {
    std::vector<CacheRun> runs;
    CutByCache(fd.get(), extent, runs);
    return runs;
  };
  CHECK(runs_of({0, kFileBytes}) == std::vector<CacheRun>{{{0, kFileBytes}, false}});
  read(3 * kUnit, 5 * kUnit);
  read(20 * kUnit, kUnit / 2);  // half a stretch counts as missing
  read(kFileBytes - kUnit, kUnit);
  CHECK(runs_of({0, kFileBytes}) ==
        std::vector<CacheRun>{{{0, 3 * kUnit}, false},
                              {{3 * kUnit, 5 * kUnit}, true},
                              {{8 * kUnit, kFileBytes - 9 * kUnit}, false},
                              {{kFileBytes - kUnit, kUnit}, true}});
  // The ends of the extent need not be multiples of anything.
  CHECK(runs_of({kUnit + 5, 4 * kUnit}) ==
        std::vector<CacheRun>{{{kUnit + 5, 2 * kUnit - 5}, false},
                              {{3 * kUnit, 2 * kUnit + 5}, true}});
  CHECK(runs_of({20 * kUnit + 100, 8000}) ==
        std::vector<CacheRun>{{{20 * kUnit + 100, 8000}, true}});
  CHECK(runs_of({5, 0}).empty());
}

// An overlay over folders of `dir`, mounted for the calling process alone. kCannotTell: it may not
// mount.
test::Verdict MountOverlay(const test::TempDir& dir) {
  const std::filesystem::path root = dir.path();
  for (const char* name : {"lower", "upper", "work", "merged"}) {
    std::filesystem::create_directory(root / name);
  }
  const std::string options = "lowerdir=" + (root / "lower").string() +
                              ",upperdir=" + (root / "upper").string() +
                              ",workdir=" + (root / "work").string();
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("overlay", (root / "merged").c_str(), "overlay", 0, options.c_str()) != 0) {
    return test::Verdict::kCannotTell;
  }
  return test::Verdict::kRight;
}

// cachestat finds no page of a file on an overlay, as if all of it were cold.
TEST_CASE("The cached pages of a file on an overlay are counted", "[io][cache_probe]") {
  const test::TempDir dir;
  const test::Verdict verdict = test::InChild([&] {
    if (const auto mounted = MountOverlay(dir); mounted != test::Verdict::kRight) return mounted;
    const std::string path = dir.path() / "merged" / "file";
    test::WriteWholeFile(path, std::vector<std::byte>(kFileBytes, std::byte{7}));
    const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const auto is_as_mincore_says = [&] {
      const double resident = ResidentShare(path, kFileBytes);
      const auto probe = ProbeCache(path);
      return probe && probe->is_counted && probe->share == resident &&
             IsCached(fd.get(), kFileBytes, {0, kFileBytes}) == (resident == 1);
    };
    const bool is_right_when_warm = is_as_mincore_says();
    Forget(path);
    return is_right_when_warm && is_as_mincore_says() ? test::Verdict::kRight
                                                      : test::Verdict::kWrong;
  });
  if (verdict == test::Verdict::kCannotTell) WARN("skipped: this process may not mount an overlay");
  CHECK(verdict != test::Verdict::kWrong);
}

// mincore says to a user who may not write the file that all of it is cached.
TEST_CASE("ProbeCache of another user's cold file does not call it cached", "[io][cache_probe]") {
  constexpr uid_t kNobody = 65'534;
  const test::TempDir dir;
  std::filesystem::permissions(dir.path(), std::filesystem::perms{0755});
  const std::string path = WriteFile(dir, kFileBytes);
  std::filesystem::permissions(path, std::filesystem::perms{0644});
  Forget(path);
  if (ResidentShare(path, kFileBytes) > 0) return;  // the file system keeps it
  const test::Verdict verdict = test::InChild([&] {
    if (::setuid(kNobody) != 0 || ::access(path.c_str(), R_OK) != 0) {
      return test::Verdict::kCannotTell;
    }
    const auto probe = ProbeCache(path);
    return probe && !probe->is_counted && probe->share < 1 ? test::Verdict::kRight
                                                           : test::Verdict::kWrong;
  });
  if (verdict == test::Verdict::kCannotTell) WARN("skipped: this process may not change its user");
  CHECK(verdict != test::Verdict::kWrong);
}

// A page cache with pages of any size, which stands in for cachestat.
struct StandInCache {
  uint64_t page_bytes;
  std::vector<char> cached;  // for each page of the file
  uint64_t counted_pages = 0;

  PageCount count() {
    return {page_bytes, [this](Extent extent) -> std::optional<uint64_t> {
              const uint64_t end = extent.offset + extent.length_bytes;
              REQUIRE(extent.length_bytes > 0);
              const auto first = static_cast<ptrdiff_t>(extent.offset / page_bytes);
              const auto last = static_cast<ptrdiff_t>(
                  std::min<uint64_t>((end - 1) / page_bytes + 1, cached.size()));
              counted_pages += static_cast<uint64_t>(last - first);
              return static_cast<uint64_t>(
                  std::count(cached.begin() + first, cached.begin() + last, 1));
            }};
  }
};

TEST_CASE("CountedShare is right with pages of every size", "[io][cache_probe]") {
  const uint64_t page_bytes = GENERATE(4 << 10, 16 << 10, 64 << 10);
  CAPTURE(page_bytes);
  // A file that is not a multiple of a page, counted as a whole.
  StandInCache small{page_bytes, std::vector<char>(161, 1)};
  CHECK(CountedShare(small.count(), 160 * page_bytes + 1) == 1.0);
  CHECK(small.counted_pages == 161);
  std::fill_n(small.cached.begin(), 23, 0);
  CHECK(CountedShare(small.count(), 160 * page_bytes + 1) == Approx(138.0 / 161));
  // A large file: no more than 8,192 pages are counted.
  StandInCache large{page_bytes, std::vector<char>(100'000, 1)};
  CHECK(CountedShare(large.count(), 100'000 * page_bytes) == 1.0);
  CHECK(large.counted_pages == 8192);
  std::fill_n(large.cached.begin(), 50'000, 0);
  CHECK(*CountedShare(large.count(), 100'000 * page_bytes) == Approx(0.5).margin(0.02));
}

TEST_CASE("IsCached and CutByCache take pages of every size", "[io][cache_probe]") {
  const uint64_t page_bytes = GENERATE(4 << 10, 16 << 10, 64 << 10);
  CAPTURE(page_bytes);
  constexpr uint64_t kUnit = 128 << 10;
  const uint64_t unit_pages = kUnit / page_bytes;
  const uint64_t file_bytes = 40 * kUnit + 100;
  StandInCache cache{page_bytes, std::vector<char>(40 * unit_pages + 1, 1)};
  std::mt19937 random(1);
  for (int i = 0; i < 6; ++i) cache.cached[random() % cache.cached.size()] = 0;
  // Oracle: page by page.
  const auto all_cached = [&](uint64_t begin, uint64_t end) {
    for (uint64_t page = begin / page_bytes; page * page_bytes < end; ++page) {
      if (cache.cached[page] == 0) return false;
    }
    return true;
  };
  for (int i = 0; i < 200; ++i) {
    const uint64_t begin = random() % file_bytes;
    const uint64_t end = begin + 1 + random() % (file_bytes - begin);
    CAPTURE(begin, end);
    CHECK(IsCached(cache.count(), file_bytes, {begin, end - begin}) == all_cached(begin, end));
    std::vector<CacheRun> runs;
    CutByCache(cache.count(), {begin, end - begin}, runs);
    uint64_t at = begin;
    for (const CacheRun& run : runs) {
      REQUIRE(run.extent.offset == at);
      const uint64_t run_end = at + run.extent.length_bytes;
      // A run is cached if and only if each of its stretches is.
      for (uint64_t next = 0; at < run_end; at = next) {
        next = std::min(run_end, AlignUp(at + 1, kUnit));
        CHECK(all_cached(at, next) == run.is_cached);
      }
    }
    CHECK(at == end);
  }
}

TEST_CASE("ProbeCache takes files of any size", "[io][cache_probe]") {
  const uint64_t size_bytes = GENERATE(0, 1, 63, 64, 65, 4096, 4097);
  const test::TempDir dir;
  const std::string path = WriteFile(dir, size_bytes);
  const auto probe = ProbeCache(path);
  REQUIRE(probe);
  CHECK(probe->share >= 0);
  CHECK(probe->share <= 1);
  if (size_bytes == 0) CHECK(probe->share == 0);
}

TEST_CASE("ProbeCache names a missing file", "[io][cache_probe]") {
  const test::TempDir dir;
  const std::string path = dir.path() / "none";
  const auto probe = ProbeCache(path);
  REQUIRE_FALSE(probe);
  CHECK(probe.error().code() == ErrorCode::kNotFound);
  CHECK(probe.error().message().find(path) != std::string::npos);
}

}  // namespace
}  // namespace lmdbio::file
