#include "lmdbio/file/io/cache_probe.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "lmdbio/base/align.h"
#include "lmdbio/base/errno_error.h"
#include "lmdbio/base/unique_fd.h"

namespace lmdbio::file {
namespace {

constexpr int kProbes = 64;

// The kernel visits every page of a counted range. 8,192 pages of a larger file, about 50 us,
// suffice for an estimate.
constexpr uint64_t kStretchPages = 64;
constexpr uint64_t kStretchesMax = 128;

// cachestat, since Linux 6.5. The C library has no name for it yet.
constexpr long kCachestatCall = 451;
struct CachestatRange {
  uint64_t offset;
  uint64_t length_bytes;
};
struct CachestatAnswer {
  uint64_t cached_pages;
  uint64_t other[4];
};

// nullopt if the kernel lacks the call or forbids it.
std::optional<uint64_t> CountByCachestat(int fd, Extent extent) {
  CachestatRange range{extent.offset, extent.length_bytes};
  CachestatAnswer answer{};
  if (::syscall(kCachestatCall, fd, &range, &answer, 0) != 0) return std::nullopt;
  return answer.cached_pages;
}

// An overlay, the root file system of most containers, reads and maps the file of another file
// system. cachestat looks for pages of the overlay's own file, which has none.
bool LiesOnOverlay(int fd) {
  struct statfs found = {};
  return ::fstatfs(fd, &found) == 0 &&
         static_cast<uint64_t>(found.f_type) == uint64_t{OVERLAYFS_SUPER_MAGIC};
}

// To others, mincore calls every page cached.
bool MayAskMincore(int fd) {
  struct stat found = {};
  if (::fstat(fd, &found) == 0 && found.st_uid == ::geteuid()) return true;
  return ::faccessat(fd, "", W_OK, AT_EACCESS | AT_EMPTY_PATH) == 0;
}

// nullopt if the file cannot be mapped or the kernel forbids the call. The map is not touched.
std::optional<uint64_t> CountByMincore(int fd, Extent extent) {
  const uint64_t page_bytes = MemoryPageBytes();
  const uint64_t begin = extent.offset / page_bytes * page_bytes;
  const uint64_t length = extent.offset + extent.length_bytes - begin;
  void* const map = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(begin));
  if (map == MAP_FAILED) return std::nullopt;
  std::vector<unsigned char> pages((length + page_bytes - 1) / page_bytes);
  const int rc = ::mincore(map, length, pages.data());
  ::munmap(map, length);
  if (rc != 0) return std::nullopt;
  const auto is_cached = [](unsigned char page) { return (page & 1U) != 0; };
  return static_cast<uint64_t>(std::count_if(pages.begin(), pages.end(), is_cached));
}

// Of a file that is not on an overlay, mincore is asked only if cachestat does not answer: it costs
// two calls more, which wait for other threads that map.
PageCount CountOf(int fd) {
  return {MemoryPageBytes(), [fd](Extent extent) -> std::optional<uint64_t> {
            if (!LiesOnOverlay(fd)) {
              if (const auto count = CountByCachestat(fd, extent)) return count;
            }
            return MayAskMincore(fd) ? CountByMincore(fd, extent) : std::nullopt;
          }};
}

// The cached share by kProbes reads of one byte that must not wait (RWF_NOWAIT). The kernel may
// still begin to fetch a missing page. Therefore the offsets are random and read-ahead is off.
double ProbedShare(int fd, uint64_t size_bytes) {
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM);
  std::mt19937_64 random{std::random_device{}()};
  std::uniform_int_distribution<uint64_t> place(0, size_bytes - 1);
  int cached = 0;
  for (int i = 0; i < kProbes; ++i) {
    char byte = 0;
    iovec into{&byte, 1};
    if (::preadv2(fd, &into, 1, static_cast<off_t>(place(random)), RWF_NOWAIT) == 1) ++cached;
  }
  return static_cast<double>(cached) / kProbes;
}

// The number of memory pages that the extent overlaps. Requires: it is not empty
uint64_t PagesOf(Extent extent, uint64_t page_bytes) {
  const uint64_t end = extent.offset + extent.length_bytes;
  return (end + page_bytes - 1) / page_bytes - extent.offset / page_bytes;
}

// The unit of CutByCache.
constexpr uint64_t kCutBytes = 128 << 10;
static_assert(kCutBytes % kMemoryPageBytesMax == 0);

void AppendRun(const CacheRun& run, std::vector<CacheRun>& runs) {
  CacheRun* const last = runs.empty() ? nullptr : &runs.back();
  const bool joins = last != nullptr && last->is_cached == run.is_cached &&
                     last->extent.offset + last->extent.length_bytes == run.extent.offset;
  if (joins) {
    last->extent.length_bytes += run.extent.length_bytes;
  } else {
    runs.push_back(run);
  }
}

}  // namespace

// A small file is counted as a whole. A larger file is divided into kStretchesMax equal parts, and
// kStretchPages pages at a random offset of each part are counted.
std::optional<double> CountedShare(const PageCount& count, uint64_t size_bytes) {
  const uint64_t page_count = PagesOf({0, size_bytes}, count.page_bytes);
  const uint64_t stretch_pages = std::min(kStretchPages, page_count);
  const uint64_t stretches = std::min(kStretchesMax, page_count / stretch_pages);
  const uint64_t part_pages = page_count / stretches;
  std::mt19937_64 random{std::random_device{}()};
  uint64_t looked_at = 0;
  uint64_t cached = 0;
  for (uint64_t i = 0; i < stretches; ++i) {
    const bool is_last = i + 1 == stretches;
    const uint64_t part_end = is_last ? page_count : (i + 1) * part_pages;
    // A file of fewer stretches is small: count the whole part.
    const uint64_t length = stretches < kStretchesMax ? part_end - i * part_pages : stretch_pages;
    std::uniform_int_distribution<uint64_t> place(i * part_pages, part_end - length);
    const auto pages =
        count.cached_pages({place(random) * count.page_bytes, length * count.page_bytes});
    if (!pages) return std::nullopt;
    looked_at += length;
    cached += *pages;
  }
  return std::min(1.0, static_cast<double>(cached) / static_cast<double>(looked_at));
}

bool IsCached(const PageCount& count, uint64_t size_bytes, Extent extent) {
  if (extent.length_bytes == 0 || extent.offset >= size_bytes) return true;
  // cachestat takes length 0 for the whole rest of the file, so the extent is not empty here.
  extent.length_bytes = std::min(extent.length_bytes, size_bytes - extent.offset);
  const auto cached = count.cached_pages(extent);
  return cached.has_value() && *cached >= PagesOf(extent, count.page_bytes);
}

bool IsCached(int fd, uint64_t size_bytes, Extent extent) {
  return IsCached(CountOf(fd), size_bytes, extent);
}

void CutByCache(const PageCount& count, Extent extent, std::vector<CacheRun>& runs) {
  if (extent.length_bytes == 0) return;
  const uint64_t end = extent.offset + extent.length_bytes;
  const uint64_t page_count = PagesOf(extent, count.page_bytes);
  const uint64_t cached = count.cached_pages(extent).value_or(0);
  const bool is_small = extent.offset / kCutBytes == (end - 1) / kCutBytes;
  if (cached == 0 || cached >= page_count || is_small) {
    AppendRun({extent, cached >= page_count}, runs);
    return;
  }
  const uint64_t middle = (extent.offset / kCutBytes + (end - 1) / kCutBytes + 1) / 2 * kCutBytes;
  CutByCache(count, {extent.offset, middle - extent.offset}, runs);
  CutByCache(count, {middle, end - middle}, runs);
}

void CutByCache(int fd, Extent extent, std::vector<CacheRun>& runs) {
  CutByCache(CountOf(fd), extent, runs);
}

Result<CacheProbe> ProbeCache(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Fail(ErrnoError(errno, path, "cannot be opened"));
  struct stat found = {};
  if (::fstat(fd.get(), &found) != 0) return Fail(ErrnoError(errno, path, "cannot be examined"));
  const auto size_bytes = static_cast<uint64_t>(found.st_size);
  if (size_bytes == 0) return CacheProbe();
  if (const auto share = CountedShare(CountOf(fd.get()), size_bytes)) {
    return CacheProbe{*share, true};
  }
  return CacheProbe{ProbedShare(fd.get(), size_bytes), false};
}

}  // namespace lmdbio::file
