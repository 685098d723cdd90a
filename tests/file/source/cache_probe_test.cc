#include "lmdbio/file/source/cache_probe.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

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
  std::vector<unsigned char> resident((size_bytes + 4095) / 4096);
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

TEST_CASE("CachedShare finds a file that was just written in the page cache", "[io][cache_probe]") {
  const test::TempDir dir;
  const std::string path = WriteFile(dir, kFileBytes);
  if (ResidentShare(path, kFileBytes) < 1) return;  // short of memory
  const auto share = CachedShare(path);
  REQUIRE(share);
  CHECK(*share > 0.9);
}

// A read with RWF_NOWAIT made the kernel fetch the page, so a second probe found a warm file.
TEST_CASE("CachedShare of a cold file stays 0 in repeated calls", "[io][cache_probe]") {
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
            const auto share = CachedShare(path);
            if (!share || *share > 0.2) return test::Verdict::kWrong;
          }
          return test::Verdict::kRight;
        }) == test::Verdict::kRight);
}

TEST_CASE("CachedShare estimates if the kernel does not count", "[io][cache_probe]") {
  const test::TempDir dir;
  const std::string path = WriteFile(dir, kFileBytes);
  if (ResidentShare(path, kFileBytes) < 1) return;  // short of memory
  CHECK(test::InChild([&] {
          if (!test::RefuseSystemCall({kCachestatCall, ENOSYS, 0, 0})) return test::Verdict::kRight;
          const auto share = CachedShare(path);
          return share && *share > 0.9 ? test::Verdict::kRight : test::Verdict::kWrong;
        }) == test::Verdict::kRight);
}

TEST_CASE("CachedShare is the share of the file that was read", "[io][cache_probe]") {
  const test::TempDir dir;
  const std::string path = WriteFile(dir, kFileBytes);
  Forget(path);
  if (ResidentShare(path, kFileBytes) > 0) return;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);  // nothing is read ahead
  std::vector<char> half(kFileBytes / 2);
  REQUIRE(::pread(fd.get(), half.data(), half.size(), 0) == static_cast<ssize_t>(half.size()));
  const auto share = CachedShare(path);
  REQUIRE(share);
  CHECK(*share == Approx(ResidentShare(path, kFileBytes)).margin(0.05));
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

TEST_CASE("CachedShare takes files of any size", "[io][cache_probe]") {
  const uint64_t size_bytes = GENERATE(0, 1, 63, 64, 65, 4096, 4097);
  const test::TempDir dir;
  const std::string path = WriteFile(dir, size_bytes);
  const auto share = CachedShare(path);
  REQUIRE(share);
  CHECK(*share >= 0);
  CHECK(*share <= 1);
  if (size_bytes == 0) CHECK(*share == 0);
}

TEST_CASE("CachedShare names a missing file", "[io][cache_probe]") {
  const test::TempDir dir;
  const std::string path = dir.path() / "none";
  const auto share = CachedShare(path);
  REQUIRE_FALSE(share);
  CHECK(share.error().code() == ErrorCode::kNotFound);
  CHECK(share.error().message().find(path) != std::string::npos);
}

}  // namespace
}  // namespace lmdbio::file
