// bench/loader/bench_cache.h - what the page cache holds when a run begins.
#ifndef LMDBIO_BENCH_LOADER_BENCH_CACHE_H_
#define LMDBIO_BENCH_LOADER_BENCH_CACHE_H_

#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::tools {

enum class CacheState {
  kAsItWas,
  kCold,  // nothing of the file
  kWarm,  // all of the file, as far as it fits
};

// Collective. Brings the page cache of every host into `state`; the first rank of each host does
// it. Cold: all caches are dropped where that is allowed, else those of the file. Warm: the file is
// read through.
// Returns: the state as a report names it, "cold (all caches of every host dropped)"
// Errors: kIo, kNotFound, kPermission; kPeerFailed
Result<std::string> PrepareCache(ranks::Group& group, CacheState state,
                                 const std::string& data_path);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_CACHE_H_
