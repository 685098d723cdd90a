// lmdbio/file/source/cache_probe.h - the share of a file that is in the page cache.
#ifndef LMDBIO_FILE_SOURCE_CACHE_PROBE_H_
#define LMDBIO_FILE_SOURCE_CACHE_PROBE_H_

#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/base/types.h"

namespace lmdbio::file {

// The share (0 to 1) of the file that can be read without storage. 0 if the kernel cannot tell.
// With cachestat (Linux 6.5, for the owner of the file) the call fetches nothing. It is exact up to
// 32 MiB; of a larger file it counts 32 MiB in 128 places. Otherwise the share is an estimate from
// 64 random bytes, and the kernel may fetch those that are not cached.
// Errors: kNotFound, kPermission, kIo
// Cost: a few dozen system calls
Result<double> CachedShare(const std::string& path);

// Whether the page cache holds every page of `extent`. Bytes beyond the file's end do not count.
// Returns false if the kernel has no cachestat or forbids it. Fetches nothing.
// fd          the open file
// size_bytes  the size of the file
// Cost: one system call; about 2 ns for each cached page
bool IsCached(int fd, uint64_t size_bytes, Extent extent);

}  // namespace lmdbio::file
#endif  // LMDBIO_FILE_SOURCE_CACHE_PROBE_H_
