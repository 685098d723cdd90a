// bench/loader/bench_cache.h - the state of the page cache at the begin of a run.
#ifndef LMDBIO_BENCH_LOADER_BENCH_CACHE_H_
#define LMDBIO_BENCH_LOADER_BENCH_CACHE_H_

#include <string>

#include "lmdbio/base/status.h"
#include "lmdbio/ranks/group/group.h"

namespace lmdbio::tools {

enum class CacheState {
  kAsItWas,
  kCold,  // no page of the file
  kWarm,  // all pages of the file, as far as they fit
};

// Collective. The first rank of each host brings its page cache into `state`. kCold drops all
// caches if that is allowed, otherwise only the pages of the file. kWarm reads the whole file.
// Returns: the name of the state in a report, as "cold (all caches of every host dropped)"
// Errors: kIo, kNotFound, kPermission; kPeerFailed
Result<std::string> PrepareCache(ranks::Group& group, CacheState state,
                                 const std::string& data_path);

}  // namespace lmdbio::tools
#endif  // LMDBIO_BENCH_LOADER_BENCH_CACHE_H_
