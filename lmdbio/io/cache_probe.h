// lmdbio/io/cache_probe.h - how much of a file the page cache holds.
#ifndef LMDBIO_IO_CACHE_PROBE_H_
#define LMDBIO_IO_CACHE_PROBE_H_

#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio::io {

// The share (0 to 1) of the file that could be read without touching storage; 0 where nobody tells.
// Where the kernel counts for us (cachestat, Linux 6.5, for the file's owner) this is exact and
// fetches nothing. Elsewhere it is an estimate from 64 random places, of which those that are not
// cached may be fetched behind our back.
// Errors: kNotFound, kPermission, kIo
// Cost: a few dozen system calls
Result<double> CachedShare(const std::string& path);

}  // namespace lmdbio::io
#endif  // LMDBIO_IO_CACHE_PROBE_H_
