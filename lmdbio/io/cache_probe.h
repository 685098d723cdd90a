// lmdbio/io/cache_probe.h - how much of a file the page cache holds.
#ifndef LMDBIO_IO_CACHE_PROBE_H_
#define LMDBIO_IO_CACHE_PROBE_H_

#include <string>

#include "lmdbio/base/status.h"

namespace lmdbio::io {

// The share (0 to 1) of some evenly spaced places of the file that could be read without touching
// storage. 0 where the file system does not tell.
// Errors: kNotFound, kPermission, kIo
// Cost: a few dozen system calls; fetches nothing
Result<double> CachedShare(const std::string& path);

}  // namespace lmdbio::io
#endif  // LMDBIO_IO_CACHE_PROBE_H_
