// lmdbio/file/io/cache_probe.h - the parts of a file that are in the page cache.
#ifndef LMDBIO_FILE_IO_CACHE_PROBE_H_
#define LMDBIO_FILE_IO_CACHE_PROBE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

struct CacheProbe {
  double share = 0;         // of the file that can be read without storage, 0 to 1
  bool is_counted = false;  // so CutByCache works for this file
};

// Looks for the file in the page cache. The share is 0 if the kernel cannot tell. For those who own
// the file or may write it the kernel counts, by cachestat (Linux 6.5) or mincore, and fetches
// nothing. The count is exact up to 8,192 pages of memory, 32 MiB on x86-64; of a larger file it
// covers so many in 128 places. For others the share is an estimate from 64 random bytes, and the
// kernel may fetch those that are not cached.
// Errors: kNotFound, kPermission, kIo
// Cost: a few dozen system calls
Result<CacheProbe> ProbeCache(const std::string& path);

// Whether the page cache holds every page of `extent`. Bytes beyond the file's end do not count.
// Returns false if the kernel does not count. Fetches nothing.
// fd          the open file
// size_bytes  the size of the file
// Cost: one system call; about 2 ns for each cached page
bool IsCached(int fd, uint64_t size_bytes, Extent extent);

// A part of an extent that is wholly in the page cache, or that storage has to read.
struct CacheRun {
  Extent extent;
  bool is_cached = false;
  friend bool operator==(const CacheRun&, const CacheRun&) = default;
};

// Cuts `extent` into runs, in file order. Runs begin and end at multiples of 128 KiB, except at the
// ends of the extent. A stretch of 128 KiB counts as missing if any of its pages is missing: to
// read the cached ones again costs less than another request. All of the extent counts as missing
// if the kernel does not count.
// fd    the open file
// runs  appended to; adjacent runs differ in is_cached
// Cost: one system call, and about four more for each place where the cached part begins or ends
void CutByCache(int fd, Extent extent, std::vector<CacheRun>& runs);

// The kernel's count of the cached pages of one file. The calls above make it of a descriptor;
// tests make one with pages of another size.
struct PageCount {
  uint64_t page_bytes;  // of the memory: the unit of the count
  // The cached pages among those that an extent overlaps [not empty]; nullopt: not counted.
  std::function<std::optional<uint64_t>(Extent)> cached_pages;
};

// The cached share of a file of `size_bytes` [> 0]; nullopt: not counted. As ProbeCache.
std::optional<double> CountedShare(const PageCount& count, uint64_t size_bytes);
bool IsCached(const PageCount& count, uint64_t size_bytes, Extent extent);
void CutByCache(const PageCount& count, Extent extent, std::vector<CacheRun>& runs);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_IO_CACHE_PROBE_H_
