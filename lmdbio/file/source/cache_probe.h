// lmdbio/file/source/cache_probe.h - how much of a file the page cache holds.
#ifndef LMDBIO_FILE_SOURCE_CACHE_PROBE_H_
#define LMDBIO_FILE_SOURCE_CACHE_PROBE_H_

#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

// The share (0 to 1) of the file that could be read without touching storage; 0 where nobody tells.
// Where the kernel counts for us (cachestat, Linux 6.5, for the file's owner) this fetches nothing;
// it is exact up to 32 MiB, and counts as much of a larger file, in 128 places. Elsewhere it is an
// estimate from 64 random places, of which those that are not cached may be fetched behind our
// back.
// Errors: kNotFound, kPermission, kIo
// Cost: a few dozen system calls
Result<double> CachedShare(const std::string& path);

// Whether the page cache holds every page of `extent` as far as the file of `size_bytes` behind
// `fd` reaches. False also where the kernel does not count for us. Fetches nothing.
// Cost: one system call; some 2 ns a page that is cached
bool IsCached(int fd, uint64_t size_bytes, Extent extent);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_CACHE_PROBE_H_
