#include "bench/loader/bench_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lmdbio/base/errno_error.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::tools {
namespace {

// Reads of this size need few calls, and the buffer is small beside the cache.
constexpr size_t kReadBytes = 1 << 20;

// The kernel drops only clean pages, so dirty ones are written back first. "3" drops the page
// cache, the directory entries and the inodes of the host; only root may write it. Without that
// right the pages of the one file are dropped. Both ways keep pages that a process has mapped.
Result<std::string> DropCaches(const std::string& data_path) {
  ::sync();
  const UniqueFd all(::open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC));
  if (all && ::write(all.get(), "3", 1) == 1) return "cold (all caches of every host dropped)";
  const UniqueFd file(::open(data_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Fail(ErrnoError(errno, data_path, "cannot be opened"));
  if (const int rc = ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED); rc != 0) {
    return Fail(ErrnoError(rc, data_path, "cannot drop its cached pages"));
  }
  return "cold (caches of the file dropped)";
}

Result<std::string> FillCache(const std::string& data_path) {
  const UniqueFd file(::open(data_path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Fail(ErrnoError(errno, data_path, "cannot be opened"));
  std::vector<std::byte> buffer(kReadBytes);
  ssize_t got = 0;
  do {
    // An interrupted read leaves -1 in `got`, and the loop goes on. Only the end of the file yields
    // 0.
    got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0 && errno != EINTR) return Fail(ErrnoError(errno, data_path, "cannot be read"));
  } while (got != 0);
  return "warm (file read through before each run)";
}

Result<std::string> FillPart(const std::string& data_path, uint32_t percent) {
  const UniqueFd file(::open(data_path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat found = {};
  if (!file || ::fstat(file.get(), &found) != 0) {
    return Fail(ErrnoError(errno, data_path, "cannot be opened"));
  }
  // The kernel must not read ahead into other stretches.
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_RANDOM);
  std::vector<size_t> stretches((static_cast<size_t>(found.st_size) + kReadBytes - 1) / kReadBytes);
  std::iota(stretches.begin(), stretches.end(), size_t{0});
  std::shuffle(stretches.begin(), stretches.end(), std::mt19937_64(/*seed=*/1));
  stretches.resize(stretches.size() * percent / 100);
  std::vector<std::byte> buffer(kReadBytes);
  for (const size_t stretch : stretches) {
    const auto offset = static_cast<off_t>(stretch * kReadBytes);
    if (::pread(file.get(), buffer.data(), buffer.size(), offset) < 0) {
      return Fail(ErrnoError(errno, data_path, "cannot be read"));
    }
  }
  return fmt::format("{} % in the page cache, in stretches of 1 MiB", percent);
}

Result<std::string> PrepareOfThisHost(CacheState state, const std::string& data_path) {
  if (!state) return "as it was";
  if (*state >= kWarm) return FillCache(data_path);
  LMDBIO_TRY(std::string words, DropCaches(data_path));
  return *state == kCold ? std::move(words) : FillPart(data_path, *state);
}

}  // namespace

Result<std::string> PrepareCache(ranks::Group& group, CacheState state,
                                 const std::string& data_path) {
  // The page cache belongs to the host, so one rank of each works. The others wait for it in Agree,
  // and no rank starts its run beforehand.
  LMDBIO_TRY(const auto host, group.SplitByHost());
  Result<std::string> words =
      PrepareOfThisHost(host->rank() == 0 ? state : std::nullopt, data_path);
  LMDBIO_TRY_VOID(ranks::Agree(group, words ? Status() : Fail(std::move(words).error())));
  return words;
}

}  // namespace lmdbio::tools
